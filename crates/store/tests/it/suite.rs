//! What every kind of store must do, one file per noun.

mod acts;
mod agents;
mod calls;
mod catalog;
mod events;
mod gateways;
mod grants;
mod hosting;
mod keys;
mod leases;
mod pins;
mod projects;
mod secrets;
mod servers;
mod settings;
