//! gVisor on this host: its location, and the sandbox's proof that it works.

use gantry_sandbox::{GVisor, Sandbox};

use super::on_path;

/// The location of `runsc`.
pub(crate) struct Gvisor {
    path: String,
}

impl Gvisor {
    /// Searches the gateway's `PATH` and the usual system folders.
    pub(super) fn find(environment: &[(String, String)]) -> Self {
        let own = environment.iter().find(|(name, _)| name == "PATH");
        let own = own.map_or("", |(_, path)| path.as_str());
        Self {
            path: format!("{own}:{}", super::PATH),
        }
    }

    /// Returns the program and a description of its proof, or why it cannot be used.
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
