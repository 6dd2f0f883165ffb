//! Binds the gateway's port: the requested one, else the last one used, else the next free one.
//!
//! Loopback only, unless another address was requested. Entry point: [`bind`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use gantry_model::diagnose::{Diagnose, Fault};

/// The first port tried on a first start.
pub const DEFAULT_PORT: u16 = 4180;

/// How many further ports are tried.
const FURTHER: u16 = 50;

/// The listen backlog.
const BACKLOG: i32 = 1024;

/// Where to listen.
#[derive(Debug, Clone, Copy)]
pub struct ListenAddress {
    /// The address; loopback by default.
    pub address: IpAddr,
    /// The requested port; 0 for any free one.
    pub port: Option<u16>,
    /// The port of the last gateway in this data folder.
    pub remembered: Option<u16>,
}

impl Default for ListenAddress {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: None,
            remembered: None,
        }
    }
}

/// No port was available.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on `{address}`")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

impl Diagnose for ListenError {
    fn code(&self) -> &'static str {
        "listen.bind"
    }

    fn fault(&self) -> Fault {
        Fault::Gateway
    }

    fn hint(&self) -> Option<String> {
        (self.source.kind() == io::ErrorKind::AddrInUse).then(|| {
            "another program has the port; name one with `--port N`, or leave `--port` out and the \
             next free one is taken"
                .to_owned()
        })
    }
}

/// Binds a listener that does not block.
pub fn bind(place: &ListenAddress) -> Result<TcpListener, ListenError> {
    match place.port {
        Some(port) => attempt(place.address, port),
        None => {
            let first = place.remembered.filter(|port| *port != 0);
            let ports = first
                .into_iter()
                .chain(DEFAULT_PORT..=DEFAULT_PORT + FURTHER);
            let mut last = None;
            for port in ports {
                match attempt(place.address, port) {
                    Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => {
                        last = Some(error)
                    }
                    other => return other,
                }
            }
            Err(last.expect("the range of ports is not empty"))
        }
    }
}

fn attempt(address: IpAddr, port: u16) -> Result<TcpListener, ListenError> {
    let address = SocketAddr::new(address, port);
    let bound = TcpListener::bind(address).and_then(|listener| {
        // The standard library's backlog of 128 drops connections under load.
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|source| ListenError { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_left_to_its_owner() {
        let owner = bind(&ListenAddress {
            port: Some(0),
            ..ListenAddress::default()
        })
        .unwrap();
        let taken = owner.local_addr().unwrap().port();
        let error = bind(&ListenAddress {
            port: Some(taken),
            ..ListenAddress::default()
        })
        .unwrap_err();
        assert!(error.hint().unwrap().contains("--port"));
        let other = bind(&ListenAddress {
            remembered: Some(taken),
            ..ListenAddress::default()
        })
        .unwrap();
        assert_ne!(other.local_addr().unwrap().port(), taken);
    }
}
