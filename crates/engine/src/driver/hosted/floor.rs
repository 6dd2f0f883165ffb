//! Chooses the isolation of a server, and checks the required minimum. Only decides. row 1.18

use gantry_model::spec::{NetworkGrant, Provider, Rung};
use gantry_sandbox::{PromiseState, Report};

/// Why a server does not start in the available isolation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FloorError {
    /// The requested provider is not available.
    #[error("provider_unavailable: `{provider}`: {why}")]
    Unavailable { provider: &'static str, why: String },
    /// The best available isolation is below the required one.
    #[error("isolation_floor: `{floor}` is required, but this host has only `{best}` ({why})")]
    Below {
        floor: &'static str,
        best: &'static str,
        why: String,
    },
    /// The requested provider is below the required isolation.
    #[error("isolation_floor: `{floor}` is required, and `provider` asks for `{asked}`")]
    AsksForLess {
        floor: &'static str,
        asked: &'static str,
    },
    /// A protection that belongs to the isolation is not enforced.
    #[error("isolation_floor: `{provider}` is incomplete on this host: {missing}")]
    NotWhole {
        provider: &'static str,
        missing: String,
    },
}

/// The isolation levels of this host; for each missing one, why.
#[derive(Debug, Clone)]
pub(crate) struct Rungs {
    pub(crate) gvisor: Result<String, String>,
    pub(crate) namespaces: Result<String, String>,
}

/// The reason for a level without a driver.
const NO_DRIVER: &str = "this release has no driver for it";

impl Rungs {
    /// Returns how the host has a level, or why it does not.
    pub(super) fn of(&self, rung: Rung) -> Result<&str, &str> {
        match rung {
            Rung::Gvisor => self.gvisor.as_deref().map_err(String::as_str),
            Rung::Namespaces => self.namespaces.as_deref().map_err(String::as_str),
            Rung::Firecracker | Rung::E2b => Err(NO_DRIVER),
            Rung::Process => Err("an image runs on a root of its own, not on the host's"),
        }
    }
}

/// Chooses the isolation level of an image, with the reason.
pub(crate) fn choose(
    provider: Provider,
    floor: Option<Rung>,
    rungs: &Rungs,
) -> Result<(Rung, String), FloorError> {
    let (rung, reason) = match provider.rung() {
        Some(rung) => {
            let unavailable = |why: &str| FloorError::Unavailable {
                provider: rung.as_str(),
                why: why.to_owned(),
            };
            let how = rungs.of(rung).map_err(unavailable)?;
            (rung, format!("asked for; {how}"))
        }
        None => ladder(rungs)?,
    };
    match floor.filter(|floor| rung < *floor) {
        Some(floor) if provider.rung().is_some() => Err(FloorError::AsksForLess {
            floor: floor.as_str(),
            asked: rung.as_str(),
        }),
        Some(floor) => Err(FloorError::Below {
            floor: floor.as_str(),
            best: rung.as_str(),
            why: reason,
        }),
        None => Ok((rung, reason)),
    }
}

/// Returns the strongest available level; the reason says why no stronger one was chosen.
fn ladder(rungs: &Rungs) -> Result<(Rung, String), FloorError> {
    let mut missing = Vec::new();
    for rung in Rung::LADDER {
        match rungs.of(rung) {
            Ok(how) if missing.is_empty() => {
                return Ok((rung, format!("the best there is; {how}")));
            }
            Ok(how) => {
                let reason = format!("the best this host has ({}); {how}", missing.join("; "));
                return Ok((rung, reason));
            }
            Err(why) => missing.push(format!("no {}: {why}", rung.as_str())),
        }
    }
    Err(FloorError::Unavailable {
        provider: "auto",
        why: missing.join("; "),
    })
}

/// The protections that every hosted tree needs, whatever its limits are.
const PILLARS: [&str; 6] = [
    "tree",
    "root",
    "filesystem",
    "syscalls",
    "ipc",
    "privileges",
];

/// Refuses an instance if its report lacks a protection of its isolation level. The sandbox has
/// already checked this before the start; this verifies the result.
pub(super) fn check_report(
    report: &Report,
    provider: &'static str,
    grant: &NetworkGrant,
) -> Result<(), FloorError> {
    let network = (*grant != NetworkGrant::Full).then_some("network");
    let pillars = PILLARS.into_iter().chain(network);
    let broken = pillars.filter_map(|name| {
        let promise = report.promise(name)?;
        (promise.state == PromiseState::NotEnforced).then(|| format!("{name} ({})", promise.detail))
    });
    let broken: Vec<String> = broken.collect();
    match broken.is_empty() {
        true => Ok(()),
        false => Err(FloorError::NotWhole {
            provider,
            missing: broken.join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rungs(gvisor: bool, namespaces: bool) -> Rungs {
        let rung = |has: bool| match has {
            true => Ok("proved".to_owned()),
            false => Err("not installed".to_owned()),
        };
        Rungs {
            gvisor: rung(gvisor),
            namespaces: rung(namespaces),
        }
    }

    // row 1.18
    #[test]
    fn the_best_rung_is_taken_and_the_reason_names_those_above_it() {
        let chosen = |provider, gvisor, namespaces| {
            choose(provider, None, &rungs(gvisor, namespaces)).map(|(rung, why)| {
                assert!(!why.is_empty());
                (rung, why)
            })
        };
        let (rung, _) = chosen(Provider::Auto, true, true).unwrap();
        assert_eq!(rung, Rung::Gvisor);
        let (rung, why) = chosen(Provider::Auto, false, true).unwrap();
        assert_eq!(rung, Rung::Namespaces);
        assert!(
            why.contains("no gvisor: not installed") && why.contains("no firecracker"),
            "{why}"
        );
        let error = chosen(Provider::Auto, false, false).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("provider_unavailable: `auto`")
        );
        for provider in [Provider::Firecracker, Provider::E2b, Provider::Process] {
            let error = chosen(provider, true, true).unwrap_err().to_string();
            let word = format!("provider_unavailable: `{}`", provider.as_str());
            assert!(error.starts_with(&word), "{error}");
        }
        let error = chosen(Provider::Gvisor, false, true).unwrap_err();
        assert!(error.to_string().contains("not installed"), "{error}");
    }

    // row 1.18, fault C12
    #[test]
    fn nothing_starts_below_the_floor() {
        let floor = Some(Rung::Gvisor);
        let below = choose(Provider::Auto, floor, &rungs(false, true)).unwrap_err();
        assert!(matches!(below, FloorError::Below { .. }), "{below}");
        assert!(choose(Provider::Auto, floor, &rungs(true, true)).is_ok());
        let asked = choose(Provider::Namespaces, floor, &rungs(true, true)).unwrap_err();
        let asked = asked.to_string();
        assert!(
            asked.ends_with("`provider` asks for `namespaces`"),
            "{asked}"
        );
    }
}
