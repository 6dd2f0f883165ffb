//! gVisor on this host: where it is, and what the sandbox proved of it by running something in it.

use gantry_sandbox::{GVisor, Sandbox};

use super::on_path;

/// Where `runsc` is looked for.
pub(crate) struct Gvisor {
    path: String,
}

impl Gvisor {
    /// Looks for it along the gateway's search path and where administrators put programs.
    pub(super) fn find(environment: &[(String, String)]) -> Self {
        let own = environment.iter().find(|(name, _)| name == "PATH");
        let own = own.map_or("", |(_, path)| path.as_str());
        Self {
            path: format!("{own}:{}", super::PATH),
        }
    }

    /// Returns the program and how it was proved, or why it cannot be used.
    pub(crate) async fn prove(&self, sandbox: &Sandbox) -> Result<(GVisor, String), String> {
        let Some(program) = on_path("runsc", &self.path) else {
            return Err("`runsc` is not on the gateway's PATH".to_owned());
        };
        let proof = sandbox.probe_runtime(&program).await?;
        let how = format!(
            "proved by a program that ran in it: gVisor {}, kernel {}",
            proof.release, proof.kernel
        );
        Ok((GVisor { program }, how))
    }
}
