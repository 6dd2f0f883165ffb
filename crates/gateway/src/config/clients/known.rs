//! Every client that is known: where its files are, and how it writes a server. Data only; a new
//! client is one entry here.

use super::dialect::{Dialect, Tools, Unit, Untyped};
use super::{Base, Client, Http, Location, Scope};

use Base::{Claude, Config, Copilot, Folder, Home};
use Location::{All, PerFolder, Root};
use Scope::{Local, Project, User};

/// What most clients have in common.
const COMMON: Dialect = Dialect {
    timeout: Unit::Unknown,
    stdio_type: None,
    streamable: "http",
    untyped: Untyped::Either,
    http_member: None,
    tools: Tools::Unknown,
    dollar: false,
};

/// Roo Code and Kilo Code share a format: seconds in `timeout`, tools disabled by name.
const ROO: Dialect = Dialect {
    timeout: Unit::Seconds,
    streamable: "streamable-http",
    tools: Tools::Lists {
        include: None,
        exclude: "disabledTools",
    },
    ..COMMON
};

/// All clients, in the order in which they are shown.
pub static CLIENTS: [Client; 10] = [
    // Starts commands only; the program itself keeps remote servers, not its file.
    Client {
        id: "claude-desktop",
        title: "Claude Desktop",
        root: "mcpServers",
        dialect: COMMON,
        http: Http::No,
        endings: &["claude_desktop_config.json"],
        places: &[(User, Config, "Claude/claude_desktop_config.json", Root)],
    },
    Client {
        id: "claude-code",
        title: "Claude Code",
        root: "mcpServers",
        dialect: Dialect {
            timeout: Unit::LongMilliseconds,
            tools: Tools::Policies,
            ..COMMON
        },
        http: Http::Typed("http"),
        endings: &[".claude.json", ".mcp.json"],
        places: &[
            (Local, Claude, ".claude.json", PerFolder),
            (Project, Folder, ".mcp.json", Root),
            (User, Claude, ".claude.json", Root),
        ],
    },
    // A URL needs no `type`, since both transports are tried.
    Client {
        id: "cursor",
        title: "Cursor",
        root: "mcpServers",
        dialect: COMMON,
        http: Http::Untyped,
        endings: &[".cursor/mcp.json"],
        places: &[
            (Project, Folder, ".cursor/mcp.json", Root),
            (User, Home, ".cursor/mcp.json", Root),
        ],
    },
    Client {
        id: "vscode",
        title: "VS Code",
        root: "servers",
        dialect: Dialect {
            stdio_type: Some("stdio"),
            ..COMMON
        },
        http: Http::Typed("http"),
        endings: &[".vscode/mcp.json", "Code/User/mcp.json"],
        places: &[
            (Project, Folder, ".vscode/mcp.json", Root),
            (User, Config, "Code/User/mcp.json", Root),
        ],
    },
    // A URL without a `type` is SSE.
    Client {
        id: "cline",
        title: "Cline",
        root: "mcpServers",
        dialect: Dialect {
            timeout: Unit::Seconds,
            streamable: "streamableHttp",
            untyped: Untyped::Sse,
            ..COMMON
        },
        http: Http::Typed("streamableHttp"),
        endings: &["cline_mcp_settings.json"],
        places: &[
            (
                User,
                Config,
                "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                Root,
            ),
            (
                User,
                Home,
                ".cline/data/settings/cline_mcp_settings.json",
                Root,
            ),
        ],
    },
    Client {
        id: "roo",
        title: "Roo Code",
        root: "mcpServers",
        dialect: ROO,
        http: Http::Typed("streamable-http"),
        endings: &[".roo/mcp.json", "roo-cline/settings/mcp_settings.json"],
        places: &[
            (Project, Folder, ".roo/mcp.json", Root),
            (
                User,
                Config,
                "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                Root,
            ),
        ],
    },
    Client {
        id: "kilo",
        title: "Kilo Code",
        root: "mcpServers",
        dialect: ROO,
        http: Http::Typed("streamable-http"),
        endings: &[".kilocode/mcp.json", "mcp_settings.json"],
        places: &[
            (Project, Folder, ".kilocode/mcp.json", Root),
            (
                User,
                Config,
                "Code/User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json",
                Root,
            ),
        ],
    },
    // `httpUrl` is streamable HTTP and `url` is SSE; variables may be written `$NAME`.
    Client {
        id: "gemini",
        title: "Gemini CLI",
        root: "mcpServers",
        dialect: Dialect {
            timeout: Unit::Milliseconds,
            untyped: Untyped::Sse,
            http_member: Some("httpUrl"),
            tools: Tools::Lists {
                include: Some("includeTools"),
                exclude: "excludeTools",
            },
            dollar: true,
            ..COMMON
        },
        http: Http::Member("httpUrl"),
        endings: &[".gemini/settings.json"],
        places: &[
            (Project, Folder, ".gemini/settings.json", Root),
            (User, Home, ".gemini/settings.json", Root),
        ],
    },
    // Sends no headers, so it reaches a server that needs a key only as a command.
    Client {
        id: "kode",
        title: "Kode",
        root: "mcpServers",
        dialect: Dialect {
            timeout: Unit::Milliseconds,
            ..COMMON
        },
        http: Http::No,
        endings: &[".kode.json", ".mcprc"],
        places: &[
            (Local, Home, ".kode.json", PerFolder),
            (Project, Folder, ".mcprc", All),
            (Project, Folder, ".kode.json", Root),
            (User, Home, ".kode.json", Root),
        ],
    },
    // Every entry lists the tools it offers, `*` for all.
    Client {
        id: "copilot",
        title: "Copilot",
        root: "mcpServers",
        dialect: Dialect {
            timeout: Unit::Milliseconds,
            stdio_type: Some("local"),
            tools: Tools::Allowed,
            ..COMMON
        },
        http: Http::Typed("http"),
        endings: &[".copilot/mcp-config.json", ".github/mcp.json"],
        places: &[
            (Project, Folder, ".github/mcp.json", Root),
            (User, Copilot, "mcp-config.json", Root),
        ],
    },
];
