//! The text of `evilpeer --help`; the faults come from their catalogue.

use std::fmt::Write as _;

use super::faults::catalogue::CATALOGUE;

const HEAD: &str = "\
evilpeer: a scripted MCP server over stdio or HTTP, well-behaved unless told otherwise

usage: evilpeer [http [--port N] [--kind streamable|sse] [--until-eof]] [FLAGS] [--fault NAME[=ARGUMENT]]…

  http                      serves HTTP on 127.0.0.1; the URL is the first line on stdout
  --port N                  there (default 0: any free one)
  --kind streamable|sse     streamable HTTP at /mcp (default), or HTTP+SSE at /sse
  --until-eof               ends when stdin does

  --era legacy|modern|dual  protocol generations it speaks (default dual)
  --name NAME               name in serverInfo (default evilpeer)
  --version VERSION         version in serverInfo
  --tools N                 N filler tools, tool_0001 and so on
  --page N                  pages of N in tools/list
  --journal FILE            one line per executed call, appended before the answer
  --fault NAME[=ARGUMENT]   see below; may be repeated
  --fault-after N           the first N tool calls behave
  --fault-calls N           faults end after N tool calls more
  --everywhere              faults in replies also hit other replies than those to tools/call; over
                            HTTP from the first request on
  --inside                  the tools `shell` (runs a script, returns what it prints) and `eat` (takes
                            that many bytes of memory, and keeps them)
  --seed K                  for the faults that are random (default 1)

Tools: echo add fail rpc_error slow crash bad_output env fds pid big big_line stderr whoami mirror
noise grow touch trigger; over HTTP also headers. Any of them takes a `nonce`, which goes into the journal.

Journal lines, each value one word (blanks and `%` as %XX, `-` for none):
  started PID | call NONCE METHOD TOOL ID | cancelled NONCE | answer REQUEST MESSAGE
  garbled LINE | ended

Faults; those of rows H need `http`, and spoil calls only unless it says otherwise:
";

pub(crate) fn text() -> String {
    let mut text = HEAD.to_owned();
    for spec in CATALOGUE {
        let name = format!("{}{}", spec.name, spec.argument.shown());
        writeln!(text, "  {name}\n      {} ({})", spec.text, spec.row)
            .expect("a string takes every write");
    }
    text
}
