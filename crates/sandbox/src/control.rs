//! The control socket between the gateway and an init: sends the job, receives records.
//!
//! Each record carries the sender's process id in the gateway's PID namespace: the kernel
//! translates it, so a process inside a nested namespace can be identified outside.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt,
};

use crate::protocol::{MAX_FDS, RECORD_LEN, Record};

/// A record and its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) record: Record,
    pub(crate) sender: Option<u32>,
}

/// Creates the socket pair: the gateway's nonblocking end and the init's end.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_passcred(&ours, true)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// Sends the descriptors of a job.
pub(crate) fn send_job(control: BorrowedFd<'_>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from(Errno::TOOBIG));
    }
    sendmsg(
        control,
        &[IoSlice::new(b"J")],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives one record without waiting; `None` when the init has exited.
pub(crate) fn receive(control: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    Ok(receive_with_socket(control)?.map(|(received, _)| received))
}

/// Receives one record and the socket that may be attached.
pub(crate) fn receive_with_socket(
    control: BorrowedFd<'_>,
) -> io::Result<Option<(Received, Option<OwnedFd>)>> {
    let mut bytes = [0; RECORD_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = recvmsg(
        control,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?
    .bytes;
    if length < RECORD_LEN {
        return Ok(None);
    }
    let (mut sender, mut socket) = (None, None);
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                sender = u32::try_from(credentials.pid.as_raw_nonzero().get()).ok();
            }
            RecvAncillaryMessage::ScmRights(descriptors) => socket = descriptors.last(),
            _ => {}
        }
    }
    let [kind, stage, _, _, v0, v1, v2, v3, data @ ..] = bytes;
    let value = i32::from_ne_bytes([v0, v1, v2, v3]);
    let record = Record {
        kind,
        stage,
        value,
        data: u64::from_ne_bytes(data),
    };
    Ok(Some((Received { record, sender }, socket)))
}

/// Waits for one record on the calling thread, with a timeout.
pub(crate) fn receive_within(
    control: BorrowedFd<'_>,
    longest: Duration,
) -> io::Result<Option<Received>> {
    let timeout = Timespec::try_from(longest).expect("a bound of seconds fits");
    loop {
        match receive(control) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
        match poll(
            &mut [PollFd::new(&control.as_fd(), PollFlags::IN)],
            Some(&timeout),
        ) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
