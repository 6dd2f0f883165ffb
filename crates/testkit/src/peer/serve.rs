//! The program `evilpeer`: its start, its loop over stdin, its end. Entry point: [`run`].

use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::faults::Fault;
use super::flights::Flights;
use super::gate::Gate;
use super::options::{Command, Options};
use super::output::{Output, Sink, write_all};
use super::random::Random;
use super::state::{Peer, Session};
use super::timer::Timer;
use super::{background, dispatch, help, http};
use crate::journal::{Entry, Writer};
use crate::{signals, web};

/// Runs `evilpeer` with these arguments (without the program's name).
pub fn run(arguments: Vec<String>) -> ExitCode {
    let outcome = match Options::parse(&arguments) {
        Ok(Command::Help) => io::stdout()
            .write_all(help::text().as_bytes())
            .map(|()| ExitCode::SUCCESS),
        Ok(Command::Serve(options)) => begin(*options, &arguments),
        Err(usage) => Err(io::Error::new(io::ErrorKind::InvalidInput, usage)),
    };
    outcome.unwrap_or_else(|error| {
        drop(writeln!(io::stderr(), "evilpeer: {error}"));
        ExitCode::from(2)
    })
}

fn begin(options: Options, arguments: &[String]) -> io::Result<ExitCode> {
    if options.faults.has(Fault::IgnoreTerm) && !options.deaf {
        let again = arguments.iter().map(String::as_str).chain(["--deaf"]);
        return Err(signals::deaf(&std::env::current_exe()?, again).exec());
    }
    let journal = options.journal.as_deref().map(Writer::open).transpose()?;
    let journal = journal.map(Arc::new);
    if let Some(journal) = &journal {
        journal.record(&Entry::Started {
            pid: std::process::id(),
        })?;
    }
    let faults = &options.faults;
    if faults.has(Fault::Exit0) {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(code) = faults.number(Fault::CrashStart) {
        write_all(rustix::stdio::stderr(), b"boom\n");
        return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
    }
    if let Some(delay) = faults.number(Fault::SlowStart) {
        thread::sleep(Duration::from_millis(delay));
    }
    if faults.has(Fault::Echo) {
        io::copy(&mut io::stdin().lock(), &mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(place) = options.place {
        web::serve(place, Arc::new(http::Front::new(options, journal)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let timer = Timer::start();
    let peer = Arc::new(Peer {
        output: Output::new(faults, options.seed, Arc::clone(&timer), Sink::Stdout),
        gate: Arc::new(Gate::new(options.fault_after, options.fault_calls)),
        timer,
        flights: Flights::default(),
        session: Mutex::new(Session::default()),
        journal,
        random: Mutex::new(Random::new(options.seed)),
        options,
    });
    background::start(&peer);
    serve(&peer)
}

fn serve(peer: &Arc<Peer>) -> io::Result<ExitCode> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let bitten = dispatch::receive(peer, &line);
        if stops(peer, Fault::NoRead, bitten) {
            live_on();
        }
        if stops(peer, Fault::CloseStdin, bitten) {
            // This thread is the only reader, so this really closes the pipe.
            rustix::stdio::dup2_stdin(&std::fs::File::open("/dev/null")?)?;
            live_on();
        }
    }
    peer.output.flush();
    peer.record(&Entry::Ended);
    if peer.faults().has(Fault::IgnoreEof) {
        live_on();
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a fault that ends reading applies after this message.
fn stops(peer: &Peer, fault: Fault, bitten: bool) -> bool {
    let faults = peer.faults();
    (faults.is(fault, "call") && bitten) || (faults.is(fault, "handshake") && peer.gate.is_open())
}

fn live_on() -> ! {
    loop {
        thread::park();
    }
}
