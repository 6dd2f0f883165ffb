//! Fault P10: orders that cross each other, compared with a model. Whatever is asked at the same time,
//! the answers are those that some order of one after the other gives; a name never has two
//! processes, and none once its removal is answered.

use futures_util::future::join_all;
use gantry_model::spec::Launch;
use gantry_testkit::procs::Process;
use gantry_testkit::wait::eventually;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use proptest::test_runner::TestCaseError;
use rustix::process::{Pid, Signal, kill_process};

use super::*;

const NAMES: [&str; 2] = ["a", "b"];

/// What is ordered, of which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ordered {
    Register,
    Remove,
    Restart,
    /// Its process is killed; nobody answers that.
    Kill,
}

type Step = Vec<(usize, Ordered)>;

/// Which servers there are.
type Model = [bool; NAMES.len()];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ordered = prop_oneof![
        3 => Just(Ordered::Register),
        2 => Just(Ordered::Remove),
        2 => Just(Ordered::Restart),
        1 => Just(Ordered::Kill),
    ];
    let one = (0..NAMES.len(), ordered);
    proptest::collection::vec(proptest::collection::vec(one, 1..=4), 1..=6)
}

/// Carries out an order on the model; returns whether it succeeds.
fn modelled(model: &mut Model, (name, ordered): (usize, Ordered)) -> bool {
    let before = model[name];
    match ordered {
        Ordered::Register => model[name] = true,
        Ordered::Remove => model[name] = false,
        Ordered::Restart | Ordered::Kill => {}
    }
    match ordered {
        Ordered::Register => !before,
        Ordered::Remove | Ordered::Restart => before,
        Ordered::Kill => true,
    }
}

/// Returns every model that some order of a step's orders leads to with just these answers.
fn explained(model: Model, step: &[((usize, Ordered), bool)]) -> Vec<Model> {
    if step.is_empty() {
        return vec![model];
    }
    let mut found = Vec::new();
    for first in 0..step.len() {
        let (order, answer) = step[first];
        let mut next = model;
        if modelled(&mut next, order) == answer {
            let mut rest = step.to_vec();
            rest.remove(first);
            found.extend(explained(next, &rest));
        }
    }
    found
}

/// A supervisor, and a text that only its processes carry.
struct Shop {
    supervisor: Supervisor,
    marker: String,
    _folder: tempfile::TempDir,
}

impl Shop {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let supervisor = supervisor(folder.path(), &Arc::default()).await;
        let marker = format!("p10-{}", folder.path().file_name().unwrap().display());
        Self {
            supervisor,
            marker,
            _folder: folder,
        }
    }

    fn marker_of(&self, name: usize) -> String {
        format!("{}-{}.", self.marker, NAMES[name])
    }

    fn spec(&self, name: usize) -> ServerSpec {
        let argv = Evilpeer::new().name(&self.marker_of(name)).argv();
        let mut spec = spec();
        spec.name = NAMES[name].parse().unwrap();
        // However often it was killed, it is not waited for.
        spec.lifecycle.restart.backoff = vec![Duration::from_millis(50)];
        if let Launch::Process(launch) = &mut spec.launch {
            launch.args = argv[1..].to_vec();
        }
        spec
    }

    /// Gives an order and returns whether it succeeded.
    async fn give(&self, (name, ordered): (usize, Ordered)) -> bool {
        match ordered {
            Ordered::Register => match self.supervisor.register(self.spec(name)).await {
                Ok(_) => true,
                Err(EngineError::Conflict { .. }) => false,
                Err(other) => panic!("{other}"),
            },
            Ordered::Remove => self.supervisor.remove(NAMES[name]).await.unwrap(),
            Ordered::Restart => match self.supervisor.restart(NAMES[name]).await {
                Ok(_) => true,
                Err(EngineError::UnknownServer { .. }) => false,
                Err(other) => panic!("{other}"),
            },
            Ordered::Kill => {
                for process in procs::with_marker(&self.marker_of(name)) {
                    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
                    // It may have ended by itself.
                    kill_process(pid.unwrap(), Signal::KILL).ok();
                }
                true
            }
        }
    }

    /// Returns a server's processes that live at the same time.
    fn living(&self, name: usize) -> Vec<Process> {
        let lives = |process: &Process| procs::alive(process.pid);
        let seen = procs::with_marker(&self.marker_of(name));
        // Those seen first may have gone while the others were looked for.
        let living: Vec<Process> = seen.into_iter().filter(lives).collect();
        living.into_iter().filter(lives).collect()
    }

    /// Gives the orders of each step at the same time, and compares what comes of them.
    async fn follow(&self, steps: &[Step]) -> Result<(), TestCaseError> {
        let mut model: Model = Default::default();
        for step in steps {
            let orders = join_all(step.iter().map(|order| self.give(*order)));
            let answers = tokio::time::timeout(LONG, orders).await;
            let answers = answers.expect("every order is answered");
            let step: Vec<_> = step.iter().copied().zip(answers).collect();
            let there: Vec<bool> = NAMES
                .iter()
                .map(|name| self.supervisor.find(name).is_some())
                .collect();
            let possible = explained(model, &step);
            let now = possible.iter().find(|model| model[..] == there[..]);
            prop_assert!(now.is_some(), "{model:?} {step:?} {there:?} {possible:?}");
            model = *now.unwrap();
            for name in 0..NAMES.len() {
                let living = self.living(name);
                let most = usize::from(model[name]);
                prop_assert!(living.len() <= most, "{step:?} {model:?} {living:#?}");
            }
        }
        // Whatever happened, each obeys now.
        for name in 0..NAMES.len() {
            let known = self.give((name, Ordered::Register)).await;
            prop_assert_eq!(known, !model[name]);
            // One that was killed just now comes back by itself.
            let up = eventually(LONG, || self.living(name).len() == 1);
            prop_assert!(up.is_some(), "{:#?}", self.living(name));
            ready(&self.supervisor.find(NAMES[name]).unwrap()).await;
            prop_assert!(self.give((name, Ordered::Remove)).await);
            let left = self.living(name);
            prop_assert!(left.is_empty(), "{left:#?}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 0, ..ProptestConfig::default() })]

    // fault P10
    #[test]
    fn orders_that_cross_each_other_are_answered_as_if_one_came_after_the_other(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { Shop::open().await.follow(&steps).await })?;
    }
}
