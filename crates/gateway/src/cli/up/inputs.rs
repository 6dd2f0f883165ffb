//! The inputs of configuration files: uses stored answers, asks a user at a terminal for the
//! others, and stores their answers encrypted for the next start. Entry point: [`answer`].

use std::collections::BTreeSet;

use gantry_engine::{EngineConfig, EngineError, KeptInput, keep_inputs, kept_inputs};
use gantry_model::diagnose::chain;

use super::Options;
use crate::cli::CliContext;
use crate::cli::failure::{Exit, Failure};
use crate::cli::files::Setup;
use crate::config::plan::Plan;

/// Finds answers to the inputs of the plan; returns whether there are any.
pub(super) fn answer(
    setup: &mut Setup,
    plan: &Plan,
    options: &Options,
    context: &CliContext,
) -> Result<bool, Failure> {
    if plan.inputs.is_empty() {
        return Ok(false);
    }
    let config = config(setup, plan, options, context)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::plain(Exit::Failed, "cannot start the runtime", &error))?;
    let scopes: BTreeSet<&str> = plan
        .inputs
        .iter()
        .map(|asked| asked.scope.as_str())
        .collect();
    if !options.ask_again {
        let kept = runtime.block_on(kept_inputs(&config));
        let kept = kept.unwrap_or_else(|error| {
            warn(&error, "answers to inputs that were kept cannot be read");
            Vec::new()
        });
        for kept in kept
            .into_iter()
            .filter(|kept| scopes.contains(&*kept.scope))
        {
            let answers = setup.inputs.entry(kept.scope).or_default();
            answers.insert(kept.id, kept.answer);
        }
    }
    if !options.json && setup.ask_inputs(plan) {
        let answered: Vec<KeptInput> = plan
            .inputs
            .iter()
            .filter_map(|asked| {
                let answer = setup.inputs.get(&asked.scope)?.get(&asked.id)?;
                // An empty answer is not stored.
                (!answer.is_empty()).then(|| KeptInput {
                    file: asked.file.display().to_string(),
                    scope: asked.scope.clone(),
                    id: asked.id.clone(),
                    answer: answer.clone(),
                })
            })
            .collect();
        if let Err(error) = runtime.block_on(keep_inputs(&config, &answered)) {
            warn(&error, "answers to inputs are not kept");
        }
    }
    Ok(!setup.inputs.is_empty())
}

fn warn(error: &EngineError, what: &str) {
    tracing::warn!(error = %chain(error), "{what}; they are asked for at every start");
}

/// Returns the store of this gateway's secrets, and its key.
fn config(
    setup: &Setup,
    plan: &Plan,
    options: &Options,
    context: &CliContext,
) -> Result<EngineConfig, Failure> {
    let (settings, environment) = (&plan.settings, &context.environment);
    let mut config = EngineConfig::new(setup.data.path());
    let store = options.store(settings, environment);
    let store =
        store.map_err(|error| Failure::plain(Exit::Usage, "invalid `GANTRY_STORE`", &error))?;
    config.store = store.unwrap_or(config.store);
    if let Some(source) = options.master_key(settings, environment) {
        config.master_key = Some(source.read(environment).map_err(|why| {
            Failure::new(Exit::Usage, format!("no master key from `{source}`: {why}"))
        })?);
    }
    Ok(config)
}
