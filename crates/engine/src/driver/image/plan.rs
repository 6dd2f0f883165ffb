//! The parameters of running an image: its own configuration, overridden by the spec. Only decides.

use std::path::{Component, Path, PathBuf};

use gantry_images::ImageConfig;
use gantry_model::spec::{ImageLaunch, volume_fits};
use gantry_sandbox::ImageUser;

use crate::driver::hosted::PATH;

/// Why an image cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlanError {
    /// Neither the image nor the spec names a program.
    #[error("the image names no program; give the server an `entrypoint`")]
    NoProgram,
    /// The user is invalid.
    #[error(transparent)]
    User(#[from] gantry_sandbox::ImageUserError),
    /// The image's working folder is not an absolute path.
    #[error("the image's working folder `{0}` is not an absolute path; give the server a `cwd`")]
    Folder(String),
    /// A volume in the image's configuration is invalid.
    #[error("the image's volume `{0}` is not a folder that can be mounted")]
    Volume(String),
}

/// The parameters of running an image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: PathBuf,
    pub(super) user: Option<ImageUser>,
    /// The volumes of the spec and of the image; outer before inner.
    pub(super) volumes: Vec<PathBuf>,
}

/// Folders of every root that the init creates.
const SYSTEM: [&str; 3] = ["/proc", "/dev", "/sys"];

impl Plan {
    pub(super) fn new(launch: &ImageLaunch, config: &ImageConfig) -> Result<Self, PlanError> {
        let (entrypoint, own) = match launch.entrypoint.is_empty() {
            true => (&config.entrypoint, &config.command),
            false => (&launch.entrypoint, &Vec::new()),
        };
        let args = match launch.args.is_empty() {
            true => own,
            false => &launch.args,
        };
        let mut words = entrypoint.iter().chain(args).cloned();
        let program = words.next().ok_or(PlanError::NoProgram)?;
        let user = launch.user.as_deref().unwrap_or(&config.user);
        let user = match user.is_empty() {
            true => None,
            false => Some(user.parse()?),
        };
        let cwd = match (&launch.cwd, config.working_dir.as_str()) {
            (Some(cwd), _) => cwd.clone(),
            (None, "") => PathBuf::from("/"),
            (None, own) if own.starts_with('/') => PathBuf::from(own),
            (None, own) => return Err(PlanError::Folder(own.to_owned())),
        };
        let args = words.collect();
        Ok(Self {
            program,
            args,
            env: environment(launch, config),
            cwd,
            user,
            volumes: volumes(launch, config)?,
        })
    }
}

fn environment(launch: &ImageLaunch, config: &ImageConfig) -> Vec<(String, String)> {
    let is_given = |name: &str| launch.env.contains_key(name);
    let own = config.env.iter().filter(|(name, _)| !is_given(name));
    let given = launch.env.iter();
    let given = given.map(|(name, value)| (name.clone(), value.clone()));
    let mut env: Vec<(String, String)> = own.cloned().chain(given).collect();
    if !env.iter().any(|(known, _)| known == "PATH") {
        env.push(("PATH".to_owned(), PATH.to_owned()));
    }
    env
}

fn volumes(launch: &ImageLaunch, config: &ImageConfig) -> Result<Vec<PathBuf>, PlanError> {
    let mut volumes: Vec<PathBuf> = launch.hosting.volumes.clone();
    for path in &config.volumes {
        let volume = normal(path).ok_or_else(|| PlanError::Volume(path.clone()))?;
        volumes.push(volume);
    }
    volumes.sort();
    volumes.dedup();
    Ok(volumes)
}

/// Returns a normalized path of the image if it can be a mount point.
fn normal(path: &str) -> Option<PathBuf> {
    let mut normal = PathBuf::from("/");
    let mut parts = Path::new(path).components();
    if parts.next() != Some(Component::RootDir) {
        return None;
    }
    for part in parts {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    let is_system = SYSTEM.iter().any(|system| normal.starts_with(system));
    let is_folder = normal.parent().is_some() && !is_system && !path.contains('\0');
    (is_folder && volume_fits(&normal)).then_some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ImageConfig {
        ImageConfig {
            entrypoint: vec!["/bin/server".to_owned()],
            command: vec!["--stdio".to_owned()],
            user: "node".to_owned(),
            working_dir: "/app".to_owned(),
            env: vec![
                ("PATH".to_owned(), "/opt/bin".to_owned()),
                ("A".to_owned(), "image".to_owned()),
            ],
            volumes: vec!["/data/".to_owned()],
            ..ImageConfig::default()
        }
    }

    #[test]
    fn the_images_own_configuration_holds_where_nothing_else_is_said() {
        let plan = Plan::new(&ImageLaunch::new("a"), &config()).unwrap();
        assert_eq!(
            (plan.program.as_str(), plan.cwd.as_path()),
            ("/bin/server", Path::new("/app"))
        );
        assert_eq!(plan.args, ["--stdio"]);
        assert_eq!(plan.user.unwrap().to_string(), "node");
        assert_eq!(plan.volumes, [PathBuf::from("/data")]);
        let expected = [("PATH", "/opt/bin"), ("A", "image")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(plan.env, expected);
    }

    // rows 1.3 and 1.19
    #[test]
    fn everything_can_be_overridden() {
        let mut launch = ImageLaunch::new("a");
        launch.entrypoint = vec!["/bin/other".to_owned()];
        launch.user = Some("1000:1000".to_owned());
        launch.cwd = Some("/srv".into());
        launch.env.insert("A".to_owned(), "spec".to_owned());
        launch.hosting.volumes = vec!["/data".into(), "/state".into()];
        let plan = Plan::new(&launch, &config()).unwrap();
        assert_eq!(plan.program, "/bin/other");
        assert_eq!(
            plan.args, [""; 0],
            "the image's arguments belong to its own entry point"
        );
        assert_eq!(plan.user.unwrap().to_string(), "1000:1000");
        assert_eq!(plan.volumes, ["/data", "/state"].map(PathBuf::from));
        assert!(plan.env.contains(&("A".to_owned(), "spec".to_owned())));
        assert!(!plan.env.contains(&("A".to_owned(), "image".to_owned())));
        launch.entrypoint.clear();
        launch.args = vec!["--http".to_owned()];
        let plan = Plan::new(&launch, &config()).unwrap();
        assert_eq!(
            (plan.program.as_str(), plan.args),
            ("/bin/server", vec!["--http".to_owned()])
        );
    }

    // fault C4
    #[test]
    fn what_cannot_be_run_is_named() {
        let error = Plan::new(&ImageLaunch::new("a"), &ImageConfig::default());
        assert_eq!(error, Err(PlanError::NoProgram));
        let mut relative = config();
        relative.working_dir = "app".to_owned();
        let error = Plan::new(&ImageLaunch::new("a"), &relative);
        assert_eq!(error, Err(PlanError::Folder("app".to_owned())));
        let long = format!("/{}", "x".repeat(256));
        for path in ["data", "/", "/a/../..", "/proc/1", "/dev", &long] {
            let mut config = config();
            config.volumes = vec![path.to_owned()];
            let error = Plan::new(&ImageLaunch::new("a"), &config);
            assert_eq!(error, Err(PlanError::Volume(path.to_owned())), "{path}");
        }
    }
}
