//! Real processes under the sandbox: trees that end, limits that bite, reports that are true.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod attack;
mod denied;
mod floor;
mod guest_limits;
mod gvisor;
mod harness;
mod hidden;
mod hosted;
mod inside;
mod limits;
mod own_root;
mod owner;
mod plain_user;
mod promises;
mod proof;
mod spawn;
mod syscalls;
mod tree;
mod unnamed;
