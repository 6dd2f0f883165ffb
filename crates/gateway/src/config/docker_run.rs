//! Parses `docker run …` in clients' entries into an image that Gantry can run itself.
//!
//! Runs nothing and contacts no container engine. Flags that would give the server access to the
//! host are refused by name, and so is every unknown flag: only flags without meaning here are
//! ignored. faults C7, C8. Entry points: [`read`] and [`DockerRun::entry`].

use gantry_model::secret::hide_arguments;
use serde_json::{Map, Value, json};

/// The engines whose `run` has the same flags.
const ENGINES: [&str; 3] = ["docker", "podman", "nerdctl"];

/// Flags without a value that have no effect for an MCP server run by Gantry.
const PLAIN: [&str; 16] = [
    "-i",
    "--interactive",
    "-t",
    "--tty",
    "--tty=true",
    "--rm",
    "--init",
    "--read-only",
    "-q",
    "--quiet",
    "--no-healthcheck",
    "--sig-proxy",
    "--sig-proxy=false",
    "--sig-proxy=true",
    "--rm=true",
    "--interactive=true",
];

/// Flags with a value that have no effect here.
const IGNORED: [&str; 16] = [
    "--name",
    "--hostname",
    "-h",
    "--label",
    "-l",
    "--log-driver",
    "--log-opt",
    "--platform",
    "--restart",
    "-a",
    "--attach",
    "--stop-signal",
    "--stop-timeout",
    "--memory-swap",
    "--memory-reservation",
    "--cpu-shares",
];

/// Flags with a value that would give the server access to the host.
const DANGEROUS: [&str; 20] = [
    "--cap-add",
    "--device",
    "--device-cgroup-rule",
    "--gpus",
    "--pid",
    "--ipc",
    "--uts",
    "--userns",
    "--cgroupns",
    "--cgroup-parent",
    "--security-opt",
    "--sysctl",
    "--volumes-from",
    "--runtime",
    "--group-add",
    "--link",
    "--env-file",
    "--add-host",
    "--oom-score-adj",
    "--cidfile",
];

/// A parsed `docker run` command.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DockerRun {
    /// The program: `docker`, `podman`, `nerdctl`.
    pub engine: String,
    /// The image.
    pub image: String,
    /// The arguments after the image.
    args: Vec<String>,
    /// Variables; one without a value takes it from the entry's environment.
    env: Vec<(String, Option<String>)>,
    /// The mount points of named volumes.
    volumes: Vec<String>,
    /// An empty one stands for that of the image, which is not used then.
    entrypoint: Option<String>,
    user: Option<String>,
    cwd: Option<String>,
    /// `limits.*`.
    limits: Map<String, Value>,
    /// Whether it used the engine's default network, which allows all connections.
    has_network: bool,
    pull: Option<&'static str>,
    /// Notes for the user about the conversion.
    pub notes: Vec<String>,
}

/// Why Gantry cannot run it itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DockerRunError {
    /// A flag that gives the server access to the host.
    #[error("`{flag}` gives the server part of this machine")]
    Dangerous {
        /// The flag with its value, without private parts.
        flag: String,
    },
    /// A folder or a socket of the host is mounted.
    #[error("`{mount}` mounts part of this machine into the server")]
    HostPath {
        /// The mount.
        mount: String,
    },
    /// A flag that is unknown, or lacks its value.
    #[error("`{flag}` cannot be carried over")]
    Unknown {
        /// The flag, without its value.
        flag: String,
    },
    /// The image is missing.
    #[error("the command names no image")]
    NoImage,
}

/// Parses a command and its arguments; `None` if it is not a `docker run`.
pub fn read(command: &str, args: &[String]) -> Option<Result<DockerRun, DockerRunError>> {
    let engine = command.rsplit('/').next().unwrap_or(command);
    let engine = ENGINES.into_iter().find(|known| *known == engine)?;
    let args = match args {
        [container, run, rest @ ..] if container == "container" && run == "run" => rest,
        [run, rest @ ..] if run == "run" => rest,
        _ => return None,
    };
    Some(parse(engine, args))
}

fn parse(engine: &str, args: &[String]) -> Result<DockerRun, DockerRunError> {
    let mut run = DockerRun {
        engine: engine.to_owned(),
        has_network: true,
        ..DockerRun::default()
    };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') || word == "-" {
            run.image.clone_from(word);
            run.args = words.cloned().collect();
            return Ok(run);
        }
        if word == "--" {
            continue;
        }
        if PLAIN.contains(&word.as_str()) {
            continue;
        }
        if matches!(word.as_str(), "--privileged" | "--privileged=true") {
            return Err(DockerRunError::Dangerous { flag: word.clone() });
        }
        if word.as_bytes().get(1) != Some(&b'-') && word.len() > 2 && bundled(word) {
            continue;
        }
        let (flag, value) = flag(word);
        let value = match value {
            Some(value) => value.to_owned(),
            None => match words.next() {
                Some(value) => value.clone(),
                None => return Err(unknown(flag)),
            },
        };
        run.take(flag, value)?;
    }
    Err(DockerRunError::NoImage)
}

/// Returns whether a word combines several flags without values, such as `-it`.
fn bundled(word: &str) -> bool {
    word[1..]
        .chars()
        .all(|letter| matches!(letter, 'i' | 't' | 'd' | 'q'))
        && !word.contains('d')
}

/// Splits a flag from its value: `--name=x`, `-eA=1`.
fn flag(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word, None),
        };
    }
    match word.char_indices().nth(2) {
        Some((at, '=')) => (&word[..at], Some(&word[at + 1..])),
        Some((at, _)) => (&word[..at], Some(&word[at..])),
        None => (word, None),
    }
}

fn unknown(flag: &str) -> DockerRunError {
    DockerRunError::Unknown {
        flag: flag.chars().take(60).collect(),
    }
}

impl DockerRun {
    fn take(&mut self, flag: &str, value: String) -> Result<(), DockerRunError> {
        let dangerous = |value: &str| DockerRunError::Dangerous {
            flag: hide_arguments(&[flag.to_owned(), value.to_owned()], "…").join(" "),
        };
        match flag {
            "-e" | "--env" => {
                let pair = match value.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (value, None),
                };
                self.env.push(pair);
            }
            "-v" | "--volume" => self.volume(&value)?,
            "--mount" => self.mount(&value)?,
            "--tmpfs" => {
                let path = value.split(':').next().unwrap_or_default();
                if path != "/tmp" && path != "/run" {
                    let note = format!("`{path}` was held in memory (tmpfs), and is on disk now");
                    self.notes.push(note);
                }
            }
            "--network" | "--net" => match value.as_str() {
                "none" => self.has_network = false,
                "bridge" | "default" => {}
                _ => return Err(dangerous(&value)),
            },
            "-p" | "--publish" => return Err(unknown(flag)),
            "--cap-drop" => {}
            "--security-opt" if value.starts_with("no-new-privileges") => {}
            "--entrypoint" => self.entrypoint = Some(value),
            "-u" | "--user" => self.user = Some(value),
            "-w" | "--workdir" => self.cwd = Some(value),
            "--cpus" => {
                self.limits.insert("cpu".to_owned(), value.into());
            }
            "-m" | "--memory" => {
                self.limits.insert("memory".to_owned(), value.into());
            }
            "--pids-limit" => {
                let pids = value.parse::<u64>().map_err(|_| unknown(flag))?;
                self.limits.insert("pids".to_owned(), pids.into());
            }
            "--pull" => {
                self.pull = Some(match value.as_str() {
                    "always" => "always",
                    "never" => "never",
                    "missing" => "missing",
                    _ => return Err(unknown(flag)),
                });
            }
            _ if IGNORED.contains(&flag) => {}
            _ if DANGEROUS.contains(&flag) => return Err(dangerous(&value)),
            _ => return Err(unknown(flag)),
        }
        Ok(())
    }

    /// Parses `NAME:/path[:options]` or `/path`; refuses paths of the host.
    fn volume(&mut self, value: &str) -> Result<(), DockerRunError> {
        let parts: Vec<&str> = value.split(':').collect();
        let path = match parts[..] {
            [path] => path,
            [source, path] | [source, path, _] if !is_host_path(source) => path,
            _ => {
                return Err(DockerRunError::HostPath {
                    mount: value.to_owned(),
                });
            }
        };
        self.keep(path);
        Ok(())
    }

    fn mount(&mut self, value: &str) -> Result<(), DockerRunError> {
        let part = |names: &[&str]| {
            let mut pairs = value.split(',').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(name, _)| names.contains(name))
                .map(|(_, value)| value)
        };
        let source = part(&["source", "src"]).unwrap_or_default();
        let kind = part(&["type"]).unwrap_or("volume");
        let target = part(&["target", "destination", "dst"]);
        match (kind, target) {
            ("volume", Some(path)) if !is_host_path(source) => self.keep(path),
            ("tmpfs", Some(_)) => {}
            _ => {
                return Err(DockerRunError::HostPath {
                    mount: value.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn keep(&mut self, path: &str) {
        self.volumes.push(path.to_owned());
        self.notes.push(format!(
            "the volume at `{path}` is a new one: what `{}` kept there is not carried over",
            self.engine
        ));
    }

    /// Returns the entry of an image, with the other settings of the old entry. `env` is the old
    /// entry's environment, for variables without a value.
    pub fn entry(&self, env: &Map<String, Value>) -> Map<String, Value> {
        let mut entry = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                entry.insert(name.to_owned(), value);
            }
        };
        let list = |list: &[String]| (!list.is_empty()).then(|| json!(list));
        put("image", Some(self.image.as_str().into()));
        // `--entrypoint ""` makes the first argument the program.
        let (entrypoint, args) = match (self.entrypoint.as_deref(), self.args.split_first()) {
            (Some(""), Some((program, rest))) => (Some(program.as_str()), rest),
            (Some(""), None) => (None, &self.args[..]),
            (own, _) => (own, &self.args[..]),
        };
        put("entrypoint", entrypoint.map(|one| json!([one])));
        put("args", list(args));
        let variables = self.env.iter().map(|(name, value)| {
            let value = match value {
                Some(value) => Value::from(value.as_str()),
                None => env
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| format!("${{{name}}}").into()),
            };
            (name.clone(), value)
        });
        let variables: Map<String, Value> = variables.collect();
        put("env", (!variables.is_empty()).then(|| variables.into()));
        put("user", self.user.as_deref().map(Value::from));
        put("cwd", self.cwd.as_deref().map(Value::from));
        put("volumes", list(&self.volumes));
        put("network", self.has_network.then(|| "full".into()));
        put("pull", self.pull.map(Value::from));
        let limits = &self.limits;
        put(
            "limits",
            (!limits.is_empty()).then(|| limits.clone().into()),
        );
        entry
    }
}

fn is_host_path(source: &str) -> bool {
    source.starts_with(['/', '.', '~', '$', '%', '\\']) || source.contains(['/', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        let mut words = line.split(' ').map(str::to_owned);
        let command = words.next().unwrap_or_default();
        let args: Vec<String> = words.collect();
        match read(&command, &args) {
            None => "no run".to_owned(),
            Some(Err(error)) => format!("refused: {error}"),
            Some(Ok(run)) => {
                let env = json!({"GITHUB_TOKEN": "${input:token}"});
                Value::Object(run.entry(env.as_object().unwrap())).to_string()
            }
        }
    }

    #[test]
    fn usual_entries_become_images() {
        insta::assert_snapshot!(
            [
                "docker run -i --rm mcp/fetch",
                "docker run -i --rm -e GITHUB_TOKEN -e A=1=2 -eB=2 --env=C ghcr.io/github/server:1 stdio -v",
                "/usr/bin/docker run --rm -it --name memory -v claude-memory:/app/dist:rw mcp/memory",
                "podman run --interactive --network none -m 1g --cpus=0.5 --pids-limit 50 -u 1000:1000 -w /app --entrypoint python x -m server",
                "docker container run -i --mount type=volume,src=a,dst=/data --pull always a/b:c",
                "docker run -i -t --tty --memory-swap -1 --stop-timeout=5 --entrypoint= x node server.js",
                "docker ps", "npx -y docker run", "docker run -i",
            ].map(told).join("\n"),
            @r#"
        {"image":"mcp/fetch","network":"full"}
        {"image":"ghcr.io/github/server:1","args":["stdio","-v"],"env":{"GITHUB_TOKEN":"${input:token}","A":"1=2","B":"2","C":"${C}"},"network":"full"}
        {"image":"mcp/memory","volumes":["/app/dist"],"network":"full"}
        {"image":"x","entrypoint":["python"],"args":["-m","server"],"user":"1000:1000","cwd":"/app","limits":{"memory":"1g","cpu":"0.5","pids":50}}
        {"image":"a/b:c","volumes":["/data"],"network":"full","pull":"always"}
        {"image":"x","entrypoint":["node"],"args":["server.js"],"network":"full"}
        no run
        no run
        refused: the command names no image
        "#
        );
    }

    // faults C7, C8
    #[test]
    fn what_would_give_the_host_away_is_refused_by_name() {
        insta::assert_snapshot!(
            [
                "--privileged", "--cap-add=SYS_ADMIN", "--cap-add ALL", "--network host", "--net=host",
                "--network=container:x", "--pid host", "--ipc=host", "--device /dev/kvm",
                "-v /:/host", "-v /var/run/docker.sock:/var/run/docker.sock", "-v ./data:/data",
                "-v ~/x:/data:rw", "-v $HOME:/data", "--mount type=bind,src=/,dst=/host",
                "--mount type=volume,src=/etc,dst=/x", "--security-opt seccomp=unconfined",
                "--volumes-from other", "--userns=host", "--runtime runc", "--env-file .env",
                "-p 8080:8080", "--unheard-of x", "-d", "--gpus all", "--uts host",
            ].map(|flag| told(&format!("docker run -i {flag} image"))).join("\n"),
            @r"
        refused: `--privileged` gives the server part of this machine
        refused: `--cap-add SYS_ADMIN` gives the server part of this machine
        refused: `--cap-add ALL` gives the server part of this machine
        refused: `--network host` gives the server part of this machine
        refused: `--net host` gives the server part of this machine
        refused: `--network container:x` gives the server part of this machine
        refused: `--pid host` gives the server part of this machine
        refused: `--ipc host` gives the server part of this machine
        refused: `--device /dev/kvm` gives the server part of this machine
        refused: `/:/host` mounts part of this machine into the server
        refused: `/var/run/docker.sock:/var/run/docker.sock` mounts part of this machine into the server
        refused: `./data:/data` mounts part of this machine into the server
        refused: `~/x:/data:rw` mounts part of this machine into the server
        refused: `$HOME:/data` mounts part of this machine into the server
        refused: `type=bind,src=/,dst=/host` mounts part of this machine into the server
        refused: `type=volume,src=/etc,dst=/x` mounts part of this machine into the server
        refused: `--security-opt seccomp=unconfined` gives the server part of this machine
        refused: `--volumes-from other` gives the server part of this machine
        refused: `--userns host` gives the server part of this machine
        refused: `--runtime runc` gives the server part of this machine
        refused: `--env-file .env` gives the server part of this machine
        refused: `-p` cannot be carried over
        refused: `--unheard-of` cannot be carried over
        refused: `-d` cannot be carried over
        refused: `--gpus all` gives the server part of this machine
        refused: `--uts host` gives the server part of this machine
        "
        );
    }
}
