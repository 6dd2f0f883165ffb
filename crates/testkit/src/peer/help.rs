//! The text of `evilpeer --help`; the faults come from their catalogue.

use std::fmt::Write as _;

use super::faults::catalogue::CATALOGUE;

const HEAD: &str = "\
evilpeer: a scripted MCP server over stdio, well-behaved unless told otherwise

usage: evilpeer [FLAGS] [--fault NAME[=ARGUMENT]]…

  --era legacy|modern|dual  protocol generations it speaks (default dual)
  --name NAME               name in serverInfo (default evilpeer)
  --version VERSION         version in serverInfo
  --tools N                 N filler tools, tool_0001 and so on
  --page N                  pages of N in tools/list
  --journal FILE            one line per executed call, appended before the answer
  --fault NAME[=ARGUMENT]   see below; may be repeated
  --fault-after N           the first N tool calls behave
  --fault-calls N           faults end after N tool calls more
  --everywhere              faults in replies also hit other replies than those to tools/call
  --seed K                  for the faults that are random (default 1)

Tools: echo add fail rpc_error slow crash bad_output env fds pid big big_line stderr whoami mirror
noise grow touch trigger. Any of them takes a `nonce`, which goes into the journal.

Journal lines, each value one word (blanks and `%` as %XX, `-` for none):
  started PID | call NONCE METHOD TOOL ID | cancelled NONCE | answer REQUEST MESSAGE
  garbled LINE | ended

Faults:
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
