//! Archives of images, as `docker save` writes them.

use gantry_images::Digest;

use crate::tarball::{archive, file};

/// Returns what comes before the layers in an archive as `docker save` writes it, and the archive's
/// entries for them are to follow as `layers/0`, `layers/1` and so on.
pub(crate) fn save_head(name: &str, diff_ids: &[Digest]) -> Vec<u8> {
    let config = config(diff_ids);
    let layers: Vec<String> = (0..diff_ids.len())
        .map(|at| format!("layers/{at}"))
        .collect();
    let manifest =
        serde_json::json!([{ "Config": "config.json", "RepoTags": [name], "Layers": layers }]);
    [
        file("manifest.json", manifest.to_string()).bytes(),
        file("config.json", config).bytes(),
    ]
    .concat()
}

/// Returns the configuration of an image.
pub(crate) fn config(diff_ids: &[Digest]) -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    serde_json::json!({
        "os": "linux",
        "architecture": architecture,
        "config": { "Entrypoint": ["/bin/server"], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    })
    .to_string()
}

/// Returns a whole archive as `docker save` writes it.
pub(crate) fn save(name: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let mut parts = vec![save_head(name, &diff_ids)];
    for (at, layer) in layers.iter().enumerate() {
        parts.push(file(format!("layers/{at}"), layer).bytes());
    }
    archive(&parts)
}
