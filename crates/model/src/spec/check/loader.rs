//! Which variables make a program load or run foreign code. fault G4
//!
//! Preloaded libraries, search paths of interpreters, options that name a file or a command,
//! settings of package managers that determine where code comes from. Entry point: [`loads_code`].

/// Variables by their full names.
const NAMES: [&str; 100] = [
    // Shells.
    "BASH_ENV",
    "BASHOPTS",
    "BASH_LOADABLES_PATH",
    "ENV",
    "FPATH",
    "IFS",
    "PATH",
    "PROMPT_COMMAND",
    "PS4",
    "SHELL",
    "SHELLOPTS",
    "ZDOTDIR",
    // The C library and what it loads.
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "GIO_EXTRA_MODULES",
    "GIO_MODULE_DIR",
    "GST_PLUGIN_PATH",
    "GTK_MODULES",
    "GTK_PATH",
    "QT_PLUGIN_PATH",
    "SASL_PATH",
    // Python.
    "PYTHONBREAKPOINT",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "__PYVENV_LAUNCHER__",
    // Node and its kin.
    "BUN_OPTIONS",
    "COREPACK_NPM_REGISTRY",
    "ELECTRON_RUN_AS_NODE",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "TSX_TSCONFIG_PATH",
    "npm_execpath",
    "npm_node_execpath",
    // Perl, Ruby, PHP, Tcl, R, Guile, Julia.
    "BUNDLE_GEMFILE",
    "GEM_HOME",
    "GEM_PATH",
    "GUILE_LOAD_PATH",
    "JULIA_DEPOT_PATH",
    "JULIA_LOAD_PATH",
    "JULIA_PROJECT",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "RUBYLIB",
    "RUBYOPT",
    "R_ENVIRON",
    "R_LIBS",
    "R_PROFILE",
    "R_PROFILE_USER",
    "TCLLIBPATH",
    // The JVM, .NET, Erlang.
    "CLASSPATH",
    "DOTNET_ADDITIONAL_DEPS",
    "DOTNET_SHARED_STORE",
    "DOTNET_STARTUP_HOOKS",
    "ELIXIR_ERL_OPTIONS",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_LIBS",
    "ERL_ZFLAGS",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "_JAVA_OPTIONS",
    // Git, and programs that others start.
    "BROWSER",
    "EDITOR",
    "EXINIT",
    "GIT_ASKPASS",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_TEMPLATE_DIR",
    "MANPAGER",
    "PAGER",
    "SSH_ASKPASS",
    "VIMINIT",
    "VISUAL",
];

/// Name prefixes of whole families of such variables.
const FAMILIES: [&str; 20] = [
    "BASH_FUNC_",
    "CARGO_BUILD_RUSTC",
    "CORECLR_",
    "COR_",
    "DOCKER_",
    "DYLD_",
    "GIT_CONFIG",
    "GOFLAGS",
    "GOPROXY",
    "GOTOOLCHAIN",
    "LD_",
    "LESSCLOSE",
    "LESSOPEN",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "MAKEFLAGS",
    "RUSTC",
    "RUSTFLAGS",
    "TS_NODE_",
];

/// Families whose programs ignore the case of the name.
const FAMILIES_IN_ANY_CASE: [&str; 4] = ["NPM_CONFIG_", "PNPM_CONFIG_", "YARN_", "BUN_CONFIG_"];

/// Families in which only variables about the origin of code count; the rest of the name is
/// case-insensitive.
const INSTALLERS: [&str; 3] = ["PIP_", "PIPX_", "UV_"];

/// The parts of such names.
const ORIGINS: [&str; 17] = [
    "INDEX",
    "FIND_LINKS",
    "CONFIG",
    "TRUSTED_HOST",
    "INSECURE_HOST",
    "PYTHON",
    "PREFIX",
    "TARGET",
    "REQUIREMENT",
    "CONSTRAINT",
    "OVERRIDE",
    "ENV_FILE",
    "PROJECT",
    "WORKING_DIR",
    "EDITABLE",
    "MIRROR",
    "PROXY",
];

/// Returns whether a variable makes programs load or run foreign code.
pub(super) fn loads_code(variable: &str) -> bool {
    let loud = variable.to_ascii_uppercase();
    NAMES.contains(&variable)
        || FAMILIES.iter().any(|family| variable.starts_with(family))
        || FAMILIES_IN_ANY_CASE
            .iter()
            .any(|family| loud.starts_with(family))
        || INSTALLERS.iter().any(|family| {
            let setting = loud.strip_prefix(family);
            setting.is_some_and(|setting| ORIGINS.iter().any(|origin| setting.contains(origin)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault G4
    #[test]
    fn what_loads_code_is_known_by_name_and_family() {
        for name in [
            "PATH",
            "LD_PRELOAD",
            "LD_AUDIT",
            "LD_LIBRARY_PATH",
            "DYLD_INSERT_LIBRARIES",
            "DOCKER_HOST",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "NODE_PATH",
            "npm_config_registry",
            "NPM_CONFIG_REGISTRY",
            "Npm_Config_Script_Shell",
            "npm_config_userconfig",
            "YARN_REGISTRY",
            "GIT_CONFIG",
            "GIT_CONFIG_COUNT",
            "GIT_CONFIG_KEY_0",
            "GIT_CONFIG_GLOBAL",
            "GIT_SSH_COMMAND",
            "GIT_EXEC_PATH",
            "RUBYOPT",
            "PERL5OPT",
            "PERL5LIB",
            "BASH_ENV",
            "BASH_FUNC_x%%",
            "ENV",
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
            "JDK_JAVA_OPTIONS",
            "GCONV_PATH",
            "PIP_INDEX_URL",
            "PIP_EXTRA_INDEX_URL",
            "PIP_index_url",
            "UV_INDEX_URL",
            "UV_DEFAULT_INDEX",
            "UV_PYTHON",
            "LUA_INIT_5_4",
            "DOTNET_STARTUP_HOOKS",
            "RUSTC_WRAPPER",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "COREPACK_NPM_REGISTRY",
            "TS_NODE_PROJECT",
            "JULIA_LOAD_PATH",
            "ERL_LIBS",
            "VIMINIT",
        ] {
            assert!(loads_code(name), "{name}");
        }
    }

    #[test]
    fn plain_settings_are_left_alone() {
        for name in [
            "GITHUB_TOKEN",
            "GIT_AUTHOR_NAME",
            "HOME",
            "LANG",
            "PYTHONUNBUFFERED",
            "PYTHONIOENCODING",
            "NODE_ENV",
            "NODE_EXTRA_CA_CERTS",
            "PIP_NO_CACHE_DIR",
            "UV_CACHE_DIR",
            "ENVIRONMENT",
            "LDAP_URL",
            "API_PATH",
            "PATH_PREFIX",
            "PIP_ROOT_USER_ACTION",
            "editor",
        ] {
            assert!(!loads_code(name), "{name}");
        }
    }
}
