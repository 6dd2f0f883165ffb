//! The driver of remote servers: starts nothing and returns the address to connect to.

use std::future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Control, Driver, DriverError, ExitStatus, HostReport, Instance, Io, StartRequest};

pub(super) struct RemoteDriver;

impl Driver for RemoteDriver {
    fn probe(&self) -> HostReport {
        HostReport::default()
    }

    fn start<'a>(
        &'a self,
        request: StartRequest<'a>,
    ) -> BoxFuture<'a, Result<Instance, DriverError>> {
        let remote = request.spec.launch.remote().cloned();
        let instance = remote.map(|remote| Instance {
            io: Io::Address(Box::new(remote)),
            control: Box::new(Released::default()),
            usage: Arc::new(|| None),
            isolation: None,
            hosting: None,
            pid: None,
        });
        let started = instance.ok_or_else(|| DriverError::new("the server has no URL"));
        Box::pin(future::ready(started))
    }
}

/// Ends when it is released: the remote server itself is not stopped.
#[derive(Default)]
struct Released(CancellationToken);

impl Control for Released {
    fn exited(&mut self) -> BoxFuture<'_, ExitStatus> {
        Box::pin(async {
            self.0.cancelled().await;
            ExitStatus::default()
        })
    }

    fn terminate(&mut self) {
        self.0.cancel();
    }

    fn kill(&mut self) {
        self.0.cancel();
    }
}
