//! All faults, one row each: name, argument, the row of the fault table it is for, what it does.
//! `evilpeer --help` is printed from here.

/// How a fault's argument looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    None,
    /// A number: what it counts, and the default.
    Number(&'static str, u64),
    /// One of these words; the first is the default.
    Choice(&'static [&'static str]),
    /// Any word: what it is, and the default.
    Text(&'static str, &'static str),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) fault: Fault,
    pub(crate) name: &'static str,
    pub(crate) argument: Argument,
    pub(crate) row: &'static str,
    pub(crate) text: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Noise,
    FloodNoline,
    Big,
    Chunk,
    Burst,
    Crlf,
    NoFinalNewline,
    Garbage,
    DupKeys,
    WrongCase,
    UnknownMember,
    Both,
    Neither,
    WrongVersion,
    NullId,
    Batch,
    UnknownResultType,
    StringId,
    FloatId,
    HugeId,
    NoId,
    UnknownId,
    Late,
    Twice,
    Shuffle,
    Hang,
    ProgressForever,
    Drip,
    NoRead,
    Storm,
    Requests,
    StderrFlood,
    StderrEscapes,
    CloseStdout,
    CloseStdin,
    ExitAfterReply,
    InitHang,
    InitError,
    InitGarbage,
    InitWrongVersion,
    DiscoverHang,
    DiscoverExit,
    ListLoop,
    ListHuge,
    ListBigDesc,
    ListBadSchema,
    ListDup,
    ListError,
    Echo,
    NewlineResult,
    Exit0,
    CrashStart,
    CrashAfter,
    IgnoreTerm,
    IgnoreEof,
    UnresponsivePing,
    SlowStart,
}

use Argument::{Choice, None as Plain, Number, Text};

const GARBAGE: &[&str] = &[
    "invalid-utf8",
    "nul",
    "bom",
    "surrogate",
    "deep",
    "1e400",
    "2^63",
    "reply-invalid-utf8",
    "reply-nul",
    "reply-bom",
    "reply-surrogate",
    "reply-deep",
    "reply-1e400",
    "reply-2^63",
];
const WHEN: &[&str] = &["call", "handshake"];
const REQUESTS: &[&str] = &[
    "all",
    "ping",
    "roots",
    "sampling",
    "elicitation",
    "unknown",
    "flood",
];

const fn spec(
    fault: Fault,
    name: &'static str,
    argument: Argument,
    row: &'static str,
    text: &'static str,
) -> Spec {
    Spec {
        fault,
        name,
        argument,
        row,
        text,
    }
}

#[rustfmt::skip]
pub(crate) const CATALOGUE: &[Spec] = &[
    spec(Fault::Noise, "noise", Choice(&["lines", "flood"]), "S1", "banner, log, blank and ANSI lines at the start and before each message; flood: without end, 6 MiB/s"),
    spec(Fault::FloodNoline, "flood-noline", Choice(&["trigger", "start"]), "S2", "endless bytes and no newline, once the tool `trigger` is called, or from the start"),
    spec(Fault::Big, "big", Number("BYTES", 8 * 1024 * 1024 + 1), "S3", "replies whose line, newline included, has exactly that many bytes"),
    spec(Fault::Chunk, "chunk", Choice(&["1", "random"]), "S4", "writes one byte at a time, or random pieces"),
    spec(Fault::Burst, "burst", Number("COUNT", 1000), "S4", "holds up to COUNT replies or 20 ms, then one write for all"),
    spec(Fault::Crlf, "crlf", Plain, "S4", "lines end in CR LF"),
    spec(Fault::NoFinalNewline, "no-final-newline", Plain, "S4", "the reply has no newline; then the end of the stream, exit code 0"),
    spec(Fault::Garbage, "garbage", Choice(GARBAGE), "S5", "a stray line of that kind before each reply, or (reply-…) a member of that kind in the result"),
    spec(Fault::DupKeys, "dupkeys", Choice(&["envelope", "result"]), "S6", "duplicate keys: a second id and result, or a second `content` in the result"),
    spec(Fault::WrongCase, "wrongcase", Plain, "S6", "`Result` for `result`, and before it a message with `Method` and `paramſ`"),
    spec(Fault::UnknownMember, "unknown-member", Plain, "S6", "an unknown member beside `result`"),
    spec(Fault::Both, "both", Plain, "S7", "result and error in one reply"),
    spec(Fault::Neither, "neither", Plain, "S7", "neither result nor error"),
    spec(Fault::WrongVersion, "wrong-version", Plain, "S7", "`jsonrpc` is \"1.0\""),
    spec(Fault::NullId, "null-id", Plain, "S7", "`id` is null"),
    spec(Fault::Batch, "batch", Plain, "S7", "the reply is in an array"),
    spec(Fault::UnknownResultType, "unknown-resulttype", Plain, "S7", "`resultType` is \"hologram\""),
    spec(Fault::StringId, "string-id", Plain, "S8", "a number as string, and the other way round"),
    spec(Fault::FloatId, "float-id", Plain, "S8", "1.0 for 1"),
    spec(Fault::HugeId, "huge-id", Plain, "S8", "the id with 30 digits more"),
    spec(Fault::NoId, "no-id", Plain, "S8", "no id at all"),
    spec(Fault::UnknownId, "unknown-id", Number("COUNT", 1), "S9", "that many replies to ids never asked, before each reply"),
    spec(Fault::Late, "late", Number("MS", 1000), "S9", "the reply comes that much later, cancelled or not"),
    spec(Fault::Twice, "twice", Plain, "S9", "each reply twice"),
    spec(Fault::Shuffle, "shuffle", Number("COUNT", 64), "S10", "holds up to COUNT replies or 5 ms, then writes them in random order"),
    spec(Fault::Hang, "hang", Text("METHOD", "tools/call"), "S11", "never replies to that method"),
    spec(Fault::ProgressForever, "progress-forever", Number("MS", 10), "S12", "a progress notification every MS, for ever, and no reply"),
    spec(Fault::Drip, "drip", Number("MS", 1000), "S12", "the reply comes one byte every MS"),
    spec(Fault::NoRead, "no-read", Choice(&["handshake", "call"]), "S13", "stops reading stdin after the handshake, or after the first call"),
    spec(Fault::Storm, "storm", Choice(&["message", "list_changed"]), "S14", "100,000 notifications a second after the handshake"),
    spec(Fault::Requests, "requests", Choice(REQUESTS), "S15", "sends requests after the handshake; the journal gets what came back"),
    spec(Fault::StderrFlood, "stderr-flood", Number("MIB", 1024), "S16", "that many MiB on stderr without a newline"),
    spec(Fault::StderrEscapes, "stderr-escapes", Plain, "S16", "control characters and escape sequences on stderr"),
    spec(Fault::CloseStdout, "close-stdout", Choice(WHEN), "S17", "closes stdout instead of replying, or after the handshake; lives on"),
    spec(Fault::CloseStdin, "close-stdin", Choice(WHEN), "S17", "closes stdin on a call (and replies), or after the handshake; lives on"),
    spec(Fault::ExitAfterReply, "exit-after-reply", Plain, "S17", "exits with code 0 right after the reply"),
    spec(Fault::InitHang, "init-hang", Plain, "S18", "never answers the handshake"),
    spec(Fault::InitError, "init-error", Plain, "S18", "answers the handshake with an error"),
    spec(Fault::InitGarbage, "init-garbage", Plain, "S18", "answers the handshake with broken JSON"),
    spec(Fault::InitWrongVersion, "init-wrong-version", Plain, "S18", "answers the handshake with version 1999-01-01"),
    spec(Fault::DiscoverHang, "discover-hang", Plain, "S18", "never answers `server/discover`; `initialize` works"),
    spec(Fault::DiscoverExit, "discover-exit", Plain, "S18", "exits with code 1 on `server/discover` before `initialize`"),
    spec(Fault::ListLoop, "list-loop", Plain, "S19", "`tools/list` gives the same cursor for ever"),
    spec(Fault::ListHuge, "list-huge", Number("COUNT", 100_000), "S19", "that many tools"),
    spec(Fault::ListBigDesc, "list-bigdesc", Number("BYTES", 10_000_000), "S19", "a tool `verbose` with a description that long"),
    spec(Fault::ListBadSchema, "list-badschema", Plain, "S19", "tools with broken, missing and hostile schemas"),
    spec(Fault::ListDup, "list-dup", Plain, "S19", "the tool `echo` twice"),
    spec(Fault::ListError, "list-error", Plain, "S19", "`tools/list` fails"),
    spec(Fault::Echo, "echo", Plain, "S20", "copies stdin to stdout, like `cat`"),
    spec(Fault::NewlineResult, "newline-result", Choice(&["spaces", "cr"]), "S21", "results spread out with spaces and tabs, or with bare CR, between tokens"),
    spec(Fault::Exit0, "exit0", Plain, "P2", "exits with code 0 at once"),
    spec(Fault::CrashStart, "crash-start", Number("CODE", 1), "P2", "exits with that code at once, after a line on stderr"),
    spec(Fault::CrashAfter, "crash-after", Number("MS", 1000), "P11", "exits with code 1 that long after the start"),
    spec(Fault::IgnoreTerm, "ignore-term", Plain, "P4", "ignores TERM, HUP and INT"),
    spec(Fault::IgnoreEof, "ignore-eof", Plain, "P4", "lives on after the end of stdin"),
    spec(Fault::UnresponsivePing, "unresponsive-ping", Plain, "P5", "answers calls but not `ping`"),
    spec(Fault::SlowStart, "slow-start", Number("MS", 1000), "P14", "reads nothing for that long"),
];

impl Argument {
    /// Returns the argument as the help shows it, with its `=`.
    pub(crate) fn shown(self) -> String {
        match self {
            Plain => String::new(),
            Number(what, default) => format!("[={what}, default {default}]"),
            Text(what, default) => format!("[={what}, default {default}]"),
            Choice(words) => format!("[={}]", words.join("|")),
        }
    }
}
