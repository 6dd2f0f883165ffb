//! Checks of hosting settings that types cannot express: the forms of references, users, paths and
//! ports, and exclusions.

use std::path::{Component, Path};

use super::{Bridge, Hosting, NetworkGrant, Provider, volume_fits};
use crate::spec::image::{ImageLaunch, check_reference};
use crate::spec::process::{ProcessLaunch, Profile};

/// The maximum number of volumes that one server can have.
const MOST_VOLUMES: usize = 16;
/// The maximum number of destinations that one server can be given.
const MOST_RULES: usize = 256;
/// Paths inside that the isolation itself uses.
const OWN_PATHS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// An invalid hosting setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostingError {
    /// The image reference is malformed.
    #[error("`image` is `{image}`, which is not an image reference: {why}")]
    Image {
        /// The reference, escaped and truncated.
        image: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The user is malformed.
    #[error("`user` is `{user}`, allowed is `name`, `uid` or `uid:gid`")]
    User {
        /// The user, escaped and truncated.
        user: String,
    },
    /// The working folder inside an image is not an absolute path.
    #[error("`cwd` is `{path}`: {why}")]
    Folder {
        /// The path, escaped and truncated.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A volume that is not allowed. fault C7
    #[error("volume `{path}` is not allowed: {why}")]
    Volume {
        /// Its index in the list.
        index: usize,
        /// The path, escaped and truncated.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A list is too long.
    #[error("`{field}` has {given} entries, at most {most} are allowed")]
    TooMany {
        /// The field.
        field: &'static str,
        /// Its number of entries.
        given: usize,
        /// The limit.
        most: usize,
    },
    /// A server without stdio needs a port.
    #[error("`stdio_bridge` is `false` and `port` is missing")]
    NoPort,
    /// A server over stdio has no port.
    #[error(
        "`{field}` is for servers over HTTP, and `stdio_bridge` is `true` or `port` is missing"
    )]
    NotHttp {
        /// The field.
        field: &'static str,
    },
    /// The path of the endpoint is malformed.
    #[error("`http_path` is `{path}`, which is not a URL path")]
    Path {
        /// The path, escaped and truncated.
        path: String,
    },
    /// A setting that is not available in the profile `local`.
    #[error("`{field}` needs `profile` to be `hosted`")]
    NotHosted {
        /// The field.
        field: &'static str,
    },
    /// A provider for another kind of server.
    #[error("`provider` is `{provider}`, which runs {runs}")]
    Provider {
        /// The provider.
        provider: &'static str,
        /// What it runs.
        runs: &'static str,
    },
}

impl HostingError {
    /// Returns the field that is wrong.
    pub fn field(&self) -> String {
        match self {
            Self::Image { .. } => "image".to_owned(),
            Self::User { .. } => "user".to_owned(),
            Self::Folder { .. } => "cwd".to_owned(),
            Self::Volume { index, .. } => format!("volumes[{index}]"),
            Self::NoPort => "stdio_bridge".to_owned(),
            Self::Path { .. } => "http_path".to_owned(),
            Self::Provider { .. } => "provider".to_owned(),
            Self::TooMany { field, .. } | Self::NotHttp { field } | Self::NotHosted { field } => {
                (*field).to_owned()
            }
        }
    }

    /// Returns what to write instead, if known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Image { .. } => "write for example `ghcr.io/org/server:1.2`",
            Self::User { .. } => "write for example `app`, `1000` or `1000:1000`",
            Self::Folder { .. } => "write an absolute path inside the image, such as `/app`",
            Self::Volume { .. } => {
                "write the path inside alone, such as `/data`: a volume is made for it, and nothing of \
                 this machine can be mounted"
            }
            Self::NoPort => {
                "give the port inside at which the server answers, such as `port = 8080`"
            }
            Self::NotHttp { .. } => "set `port`, and `stdio_bridge` to `false`, or leave this out",
            Self::Path { .. } => "write for example `/mcp`",
            Self::NotHosted { .. } => {
                "a server of the profile `local` has the network and the files of the gateway's user"
            }
            Self::Provider { .. } => "leave it out, or write `auto`",
            Self::TooMany { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// Checks an image.
pub(in crate::spec) fn check_image(launch: &ImageLaunch) -> Result<(), HostingError> {
    check_reference(&launch.image).map_err(|why| HostingError::Image {
        image: shown(&launch.image),
        why,
    })?;
    if let Some(user) = launch.user.as_ref().filter(|user| !is_user(user)) {
        return Err(HostingError::User { user: shown(user) });
    }
    if let Some(cwd) = &launch.cwd {
        let folder = |why| HostingError::Folder {
            path: shown(&cwd.to_string_lossy()),
            why,
        };
        check_inside(cwd).map_err(folder)?;
    }
    if launch.hosting.provider == Provider::Process {
        return Err(HostingError::Provider {
            provider: "process",
            runs: "commands, and this is an image",
        });
    }
    check_hosting(&launch.hosting)
}

/// Checks the hosting settings of a command.
pub(in crate::spec) fn check_process(launch: &ProcessLaunch) -> Result<(), HostingError> {
    let hosting = &launch.hosting;
    if launch.profile == Profile::Local {
        let is_open = matches!(hosting.network, None | Some(NetworkGrant::Full));
        let is_free = matches!(hosting.provider, Provider::Auto | Provider::Process);
        let set = [
            ("volumes", !hosting.volumes.is_empty()),
            ("network", !is_open),
            ("port", hosting.port.is_some()),
            ("published_port", hosting.published_port.is_some()),
            ("provider", !is_free),
            ("isolation_floor", hosting.isolation_floor.is_some()),
            ("limits.disk", launch.limits.disk_bytes.is_some()),
        ];
        let not_had = set.into_iter().find(|(_, is_set)| *is_set);
        if let Some((field, _)) = not_had {
            return Err(HostingError::NotHosted { field });
        }
    }
    match hosting.provider {
        Provider::Auto | Provider::Process => {}
        Provider::Gvisor | Provider::Firecracker | Provider::E2b | Provider::Namespaces => {
            return Err(HostingError::Provider {
                provider: hosting.provider.as_str(),
                runs: "images, and this is a command",
            });
        }
    }
    check_hosting(hosting)
}

fn check_hosting(hosting: &Hosting) -> Result<(), HostingError> {
    if hosting.volumes.len() > MOST_VOLUMES {
        return Err(HostingError::TooMany {
            field: "volumes",
            given: hosting.volumes.len(),
            most: MOST_VOLUMES,
        });
    }
    for (index, volume) in hosting.volumes.iter().enumerate() {
        check_volume(volume, &hosting.volumes[..index]).map_err(|why| HostingError::Volume {
            index,
            path: shown(&volume.to_string_lossy()),
            why,
        })?;
    }
    if let Some(NetworkGrant::Egress(rules)) = &hosting.network
        && rules.len() > MOST_RULES
    {
        return Err(HostingError::TooMany {
            field: "network",
            given: rules.len(),
            most: MOST_RULES,
        });
    }
    if hosting.stdio_bridge == Some(false) && hosting.port.is_none() {
        return Err(HostingError::NoPort);
    }
    if hosting.bridge() == Bridge::Stdio {
        let set = [
            ("port", hosting.port.is_some()),
            ("published_port", hosting.published_port.is_some()),
            ("http_path", hosting.http_path.is_some()),
        ];
        if let Some((field, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
            return Err(HostingError::NotHttp { field });
        }
    }
    let is_path = |path: &str| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'\\' | b'"');
        path.starts_with('/') && path.len() <= 1024 && path.bytes().all(is_plain)
    };
    match &hosting.http_path {
        Some(path) if !is_path(path) => Err(HostingError::Path { path: shown(path) }),
        Some(_) | None => Ok(()),
    }
}

fn check_volume(path: &Path, others: &[std::path::PathBuf]) -> Result<(), &'static str> {
    let text = path.to_string_lossy();
    if text.contains(':') {
        return Err("it names a place outside, or options");
    }
    if text.contains(',') || text.chars().any(char::is_control) {
        return Err("it has a comma or a control character");
    }
    check_inside(path)?;
    if path.parent().is_none() {
        return Err("the root itself cannot be a volume");
    }
    if OWN_PATHS.iter().any(|own| path.starts_with(own)) {
        return Err("the isolation uses this path for its own files");
    }
    if !volume_fits(path) {
        return Err("it is too long: written as one file name it has more than 255 bytes");
    }
    match others
        .iter()
        .any(|other| path.starts_with(other) || other.starts_with(path))
    {
        true => Err("it overlaps another volume"),
        false => Ok(()),
    }
}

/// Checks a path inside: absolute, normalized, not longer than the kernel allows.
fn check_inside(path: &Path) -> Result<(), &'static str> {
    let text = path.to_string_lossy();
    if !path.is_absolute() {
        return Err("it is not an absolute path");
    }
    if text.len() > 1024 {
        return Err("it is longer than 1,024 characters");
    }
    if text.contains('\0') {
        return Err("it has a NUL byte");
    }
    let is_plain =
        |component: Component<'_>| matches!(component, Component::RootDir | Component::Normal(_));
    let is_written_plainly =
        text == "/" || !text[1..].split('/').any(|part| matches!(part, "." | ".."));
    match path.components().all(is_plain) && is_written_plainly {
        true => Ok(()),
        false => Err("it has `.` or `..` in it"),
    }
}

fn is_user(text: &str) -> bool {
    let is_name = |name: &str| {
        let is_inner =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        (1..=64).contains(&name.len()) && name.bytes().all(is_inner) && !name.starts_with('-')
    };
    match text.split_once(':') {
        Some((user, group)) => is_name(user) && is_name(group),
        None => is_name(text),
    }
}

fn shown(text: &str) -> String {
    text.chars()
        .take(100)
        .flat_map(char::escape_debug)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(value: serde_json::Value) -> String {
        let launch: ImageLaunch = serde_json::from_value(value).unwrap();
        match check_image(&launch) {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{}: {error}", error.field()),
        }
    }

    fn hosting(value: serde_json::Value) -> String {
        told(serde_json::json!({"image": "a", "hosting": value}))
    }

    // faults C7, C8
    #[test]
    fn what_an_image_may_not_ask_for_is_refused_by_name() {
        insta::assert_snapshot!(
            [
                hosting(serde_json::json!({"volumes": ["/data"]})),
                hosting(serde_json::json!({"volumes": ["/"]})),
                hosting(serde_json::json!({"volumes": ["/data", "/data/x"]})),
                hosting(serde_json::json!({"volumes": ["/etc:/host:rw"]})),
                hosting(serde_json::json!({"volumes": ["/a/../etc"]})),
                hosting(serde_json::json!({"volumes": ["data"]})),
                hosting(serde_json::json!({"volumes": ["/proc/x"]})),
                hosting(serde_json::json!({"volumes": ["/var/run/docker.sock:/x"]})),
                hosting(serde_json::json!({"volumes": [format!("/{}", "a".repeat(255))]})),
                hosting(serde_json::json!({"volumes": [format!("/{}", "é".repeat(43))]})),
                told(serde_json::json!({"image": "--privileged"})),
                told(serde_json::json!({"image": "a", "user": "--root"})),
                told(serde_json::json!({"image": "a", "cwd": "app"})),
                hosting(serde_json::json!({"provider": "process"})),
            ].join("\n"),
            @r"
        ok
        volumes[0]: volume `/` is not allowed: the root itself cannot be a volume
        volumes[1]: volume `/data/x` is not allowed: it overlaps another volume
        volumes[0]: volume `/etc:/host:rw` is not allowed: it names a place outside, or options
        volumes[0]: volume `/a/../etc` is not allowed: it has `.` or `..` in it
        volumes[0]: volume `data` is not allowed: it is not an absolute path
        volumes[0]: volume `/proc/x` is not allowed: the isolation uses this path for its own files
        volumes[0]: volume `/var/run/docker.sock:/x` is not allowed: it names a place outside, or options
        ok
        volumes[0]: volume `/ééééééééééééééééééééééééééééééééééééééééééé` is not allowed: it is too long: written as one file name it has more than 255 bytes
        image: `image` is `--privileged`, which is not an image reference: it looks like a flag
        user: `user` is `--root`, allowed is `name`, `uid` or `uid:gid`
        cwd: `cwd` is `app`: it is not an absolute path
        provider: `provider` is `process`, which runs commands, and this is an image
        "
        );
    }

    // row 1.2
    #[test]
    fn a_port_and_the_bridge_fit_together() {
        insta::assert_snapshot!(
            [
                hosting(serde_json::json!({"stdio_bridge": false, "port": 8080})),
                hosting(serde_json::json!({"port": 8080, "published_port": 9000})),
                hosting(serde_json::json!({"stdio_bridge": false})),
                hosting(serde_json::json!({"stdio_bridge": true, "port": 8080})),
                hosting(serde_json::json!({"published_port": 8080})),
                hosting(serde_json::json!({"port": 1, "http_path": "mcp"})),
            ].join("\n"),
            @r"
        ok
        ok
        stdio_bridge: `stdio_bridge` is `false` and `port` is missing
        port: `port` is for servers over HTTP, and `stdio_bridge` is `true` or `port` is missing
        published_port: `published_port` is for servers over HTTP, and `stdio_bridge` is `true` or `port` is missing
        http_path: `http_path` is `mcp`, which is not a URL path
        "
        );
    }

    #[test]
    fn a_local_command_has_none_of_it_and_no_command_runs_in_gvisor() {
        let told = |value: serde_json::Value| {
            let launch: ProcessLaunch = serde_json::from_value(value).unwrap();
            check_process(&launch).map_err(|error| error.field())
        };
        let local = |hosting: serde_json::Value| {
            told(serde_json::json!({"command": "x", "profile": "local", "hosting": hosting}))
        };
        assert_eq!(local(serde_json::json!({"network": "full"})), Ok(()));
        assert_eq!(
            local(serde_json::json!({"network": "none"})),
            Err("network".into())
        );
        assert_eq!(
            local(serde_json::json!({"volumes": ["/d"]})),
            Err("volumes".into())
        );
        let hosted = |hosting: serde_json::Value| {
            told(serde_json::json!({"command": "x", "hosting": hosting}))
        };
        assert_eq!(
            hosted(serde_json::json!({"network": ["a.example:443"]})),
            Ok(())
        );
        assert_eq!(
            hosted(serde_json::json!({"provider": "gvisor"})),
            Err("provider".into())
        );
    }
}
