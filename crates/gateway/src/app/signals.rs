//! Signals of a serving process: the first asks it to stop, the second forces it.
//!
//! SIGINT, SIGTERM, SIGQUIT and SIGHUP stop it; under a service manager SIGHUP reloads the
//! configuration files. SIGUSR1 and SIGUSR2 do nothing. SIGHUP and SIGQUIT stay ignored if they were
//! ignored at the start (`nohup`). Signals are received on their own thread, which kills the process
//! if it does not end in time. Entry point: [`Signals::listen`].

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustix::process::{Signal as Sent, getpid, kill_process};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// How long the process may take after the second signal.
const AT_ONCE: Duration = Duration::from_secs(2);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalRequest {
    /// To stop; the name of the signal.
    Stop(&'static str),
    /// To read the configuration files again.
    Reload,
}

/// What SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// The terminal was closed.
    Stop,
    /// A service manager requests a reload of the configuration files.
    Reload,
}

/// Signals as they come.
#[derive(Debug)]
pub struct Signals {
    asked: mpsc::Receiver<SignalRequest>,
}

impl Signals {
    /// Starts listening; from here on signals do not end the process. If it still runs `within`
    /// after the first signal, it is killed.
    pub fn listen(hangup: Hangup, within: Duration) -> io::Result<Self> {
        // Room for both that matter, and one to reload.
        let (tell, asked) = mpsc::channel(4);
        let (ready, started) = sync_channel(1);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(hear(hangup, within, tell, ready)))?;
        // Nothing else runs yet, so blocking briefly is fine.
        let started = started.recv();
        started.unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))?;
        Ok(Self { asked })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> SignalRequest {
        match self.asked.recv().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }

    /// Waits for the next stop signal, and returns its name.
    pub async fn stop(&mut self) -> &'static str {
        loop {
            if let SignalRequest::Stop(name) = self.next().await {
                return name;
            }
        }
    }
}

/// Listens, and makes sure that the process ends.
async fn hear(
    hangup: Hangup,
    within: Duration,
    tell: mpsc::Sender<SignalRequest>,
    ready: SyncSender<io::Result<()>>,
) {
    let mut heard = match Heard::listen(hangup) {
        Ok(heard) => heard,
        Err(error) => return drop(ready.send(Err(error))),
    };
    drop(ready.send(Ok(())));
    let again = move |asked| {
        // The queue is full: earlier signals were not even handled.
        tell.try_send(asked).ok();
    };
    loop {
        let asked = heard.next().await;
        again(asked);
        if matches!(asked, SignalRequest::Stop(_)) {
            break;
        }
    }
    let insisted = async {
        loop {
            let asked = heard.next().await;
            again(asked);
            if matches!(asked, SignalRequest::Stop(_)) {
                return;
            }
        }
    };
    if timeout(within, insisted).await.is_ok() {
        sleep(AT_ONCE).await;
    }
    // Whatever blocks the rest of the program, it ends now, and its servers with it.
    kill_process(getpid(), Sent::KILL).ok();
}

/// The handled signals.
struct Heard {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
    quit: Option<Signal>,
    on_hangup: SignalRequest,
    /// Signals without a meaning here, which would end the process if nobody listened.
    _unused: [Signal; 2],
}

impl Heard {
    fn listen(hangup: Hangup) -> io::Result<Self> {
        let ignored = ignored();
        let unless_ignored = |kind: SignalKind| match is_ignored(ignored, kind) {
            true => Ok(None),
            false => signal(kind).map(Some),
        };
        let on_hangup = match hangup {
            Hangup::Stop => SignalRequest::Stop("SIGHUP"),
            Hangup::Reload => SignalRequest::Reload,
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match hangup {
                Hangup::Stop => unless_ignored(SignalKind::hangup())?,
                Hangup::Reload => Some(signal(SignalKind::hangup())?),
            },
            quit: unless_ignored(SignalKind::quit())?,
            on_hangup,
            _unused: [
                signal(SignalKind::user_defined1())?,
                signal(SignalKind::user_defined2())?,
            ],
        })
    }

    async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalRequest::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalRequest::Stop("SIGINT"),
            () = received(&mut self.quit) => SignalRequest::Stop("SIGQUIT"),
            () = received(&mut self.hangup) => self.on_hangup,
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Returns the signals that were ignored when this process started, as a mask.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    mask(&status)
}

fn mask(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

fn is_ignored(mask: u64, kind: SignalKind) -> bool {
    let number = kind.as_raw_value();
    (1..=64).contains(&number) && mask & (1 << (number - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ignored_from_the_start_is_known() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        let mask = mask(status);
        assert!(is_ignored(mask, SignalKind::hangup()));
        assert!(is_ignored(mask, SignalKind::pipe()));
        assert!(!is_ignored(mask, SignalKind::quit()));
        assert!(!is_ignored(super::mask(""), SignalKind::hangup()));
    }
}
