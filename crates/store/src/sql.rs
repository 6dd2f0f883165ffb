//! The statements, one file per noun, in the text that SQLite and PostgreSQL both take.
//!
//! They use `$1` placeholders, `ON CONFLICT`, `RETURNING`, names qualified with `kb`. A
//! statement that only one database takes says so in its name. Every file ends with `ALL`, so that a
//! test can prepare each statement in both.

pub(crate) mod acts;
pub(crate) mod agents;
pub(crate) mod calls;
pub(crate) mod catalog;
pub(crate) mod chain;
pub(crate) mod clock;
pub(crate) mod copy;
pub(crate) mod events;
pub(crate) mod gateways;
pub(crate) mod grants;
pub(crate) mod holds;
pub(crate) mod hosting;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod pins;
pub(crate) mod products;
pub(crate) mod projects;
pub(crate) mod secrets;
pub(crate) mod servers;
pub(crate) mod settings;

/// Returns every statement that both databases take.
#[cfg(test)]
pub(crate) fn all() -> Vec<&'static str> {
    let each = [
        acts::ALL,
        agents::ALL,
        calls::ALL,
        catalog::ALL,
        chain::ALL,
        clock::ALL,
        copy::ALL,
        events::ALL,
        gateways::ALL,
        grants::ALL,
        holds::ALL,
        hosting::ALL,
        journal::ALL,
        keys::ALL,
        leases::ALL,
        pins::ALL,
        products::ALL,
        projects::ALL,
        secrets::ALL,
        servers::ALL,
        settings::ALL,
    ];
    each.concat()
}
