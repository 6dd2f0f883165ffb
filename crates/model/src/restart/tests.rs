//! Timelines of crashes and what is decided.

use std::fmt::Write;

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Runs a server that lives for the given times, one after the other, each healthy from its start.
fn timeline(policy: &RestartPolicy, exit: &str, lives: &[Duration]) -> String {
    let mut history = History::default();
    let mut now = Duration::ZERO;
    let mut text = String::new();
    for life in lives {
        history.record_healthy(now);
        now += *life;
        history.record_exit(policy, now);
        let decision = policy.decide(&history, now, 0.5);
        let warning = if decision.health_warning {
            " (warning)"
        } else {
            ""
        };
        writeln!(
            text,
            "{:>5}s {}{warning}",
            now.as_secs(),
            decision.describe(exit)
        )
        .unwrap();
        now += decision.delay;
    }
    text
}

// rows 1.9, 1.10
#[test]
fn backs_off_after_more_than_three_crashes_in_a_minute() {
    let policy = RestartPolicy::default();
    insta::assert_snapshot!(timeline(&policy, "exit code 1", &[at(0); 10]), @r"
        0s restarting at once: exit code 1
        0s restarting at once: exit code 1
        0s restarting at once: exit code 1
        0s backing off 5s: 4 failures within 60s (warning)
        5s backing off 15s: 5 failures within 60s (warning)
       20s backing off 45s: 6 failures within 60s (warning)
       65s backing off 120s: 7 failures without 600s of health between them (warning)
      185s backing off 300s: 8 failures without 600s of health between them (warning)
      485s backing off 300s: 9 failures without 600s of health between them (warning)
      785s backing off 300s: 10 failures without 600s of health between them (warning)
    ");
}

// fault P2
#[test]
fn an_exit_with_code_0_counts_like_a_crash() {
    let policy = RestartPolicy::default();
    insta::assert_snapshot!(timeline(&policy, "exit code 0", &[at(1); 5]), @r"
        1s restarting at once: exit code 0
        2s restarting at once: exit code 0
        3s restarting at once: exit code 0
        4s backing off 5s: 4 failures within 60s (warning)
       10s backing off 15s: 5 failures within 60s (warning)
    ");
}

// row 1.10
#[test]
fn ten_minutes_of_health_or_a_reset_by_hand_forgive() {
    let policy = RestartPolicy::default();
    let lives = [
        at(0),
        at(0),
        at(0),
        at(0),
        at(599),
        at(600),
        at(0),
        at(0),
        at(0),
    ];
    insta::assert_snapshot!(timeline(&policy, "exit code 1", &lives), @r"
        0s restarting at once: exit code 1
        0s restarting at once: exit code 1
        0s restarting at once: exit code 1
        0s backing off 5s: 4 failures within 60s (warning)
      604s backing off 15s: 5 failures without 600s of health between them (warning)
     1219s restarting at once: exit code 1
     1219s restarting at once: exit code 1
     1219s restarting at once: exit code 1
     1219s backing off 5s: 4 failures within 60s (warning)
    ");

    let mut history = History::default();
    for _ in 0..5 {
        history.record_exit(&policy, at(0));
    }
    assert!(policy.warns(&history, at(0)));
    history.reset();
    assert!(!policy.warns(&history, at(0)));
    history.record_exit(&policy, at(1));
    assert_eq!(policy.decide(&history, at(1), 0.5).delay, Duration::ZERO);
}

#[test]
fn rare_crashes_always_restart_at_once() {
    let policy = RestartPolicy::default();
    let text = timeline(&policy, "signal 9", &[at(21); 50]);
    assert!(
        text.lines()
            .all(|line| line.ends_with("restarting at once: signal 9")),
        "{text}"
    );
}

#[test]
fn the_warning_ends_with_the_tenth_minute_of_unbroken_health() {
    let policy = RestartPolicy::default();
    let mut history = History::default();
    for _ in 0..4 {
        history.record_exit(&policy, at(0));
    }
    history.record_healthy(at(5));
    history.record_healthy(at(300));
    history.record_unhealthy(&policy, at(400));
    history.record_healthy(at(410));
    assert!(policy.warns(&history, at(1009)));
    assert!(!policy.warns(&history, at(1010)));
    history.record_unhealthy(&policy, at(1011));
    assert!(
        !policy.warns(&history, at(1012)),
        "what was forgiven stays forgiven"
    );
}

#[test]
fn refuses_policies_that_would_loop_hot_or_never() {
    let (second, backoff) = (at(1), vec![at(1)]);
    let check = RestartPolicy::new;
    assert!(check(3, second, backoff.clone(), second, 0.1).is_ok());
    assert!(check(101, second, backoff.clone(), second, 0.1).is_err());
    assert!(check(3, Duration::ZERO, backoff.clone(), second, 0.1).is_err());
    assert!(check(3, second, vec![], second, 0.1).is_err());
    assert!(check(3, second, vec![Duration::ZERO], second, 0.1).is_err());
    assert!(check(3, second, vec![Duration::MAX], second, 0.1).is_err());
    for jitter in [-0.1, 1.1, f64::NAN] {
        assert!(check(3, second, backoff.clone(), second, jitter).is_err());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Exit,
    Healthy,
    Unhealthy,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Exit),
        1 => Just(Step::Healthy),
        1 => Just(Step::Unhealthy),
        2 => (0_u64..700).prop_map(Step::Pass),
    ]
}

proptest! {
    // row 1.10
    #[test]
    fn waits_are_rungs_with_a_tenth_of_jitter_and_only_health_shortens_them(
        steps in proptest::collection::vec(step(), 0..300),
        random in 0.0_f64..1.0,
    ) {
        let policy = RestartPolicy::default();
        let mut history = History::default();
        let mut now = Duration::ZERO;
        let mut before = Duration::ZERO;
        for step in steps {
            match step {
                Step::Pass(seconds) => now += at(seconds),
                Step::Healthy => history.record_healthy(now),
                Step::Unhealthy => history.record_unhealthy(&policy, now),
                Step::Exit => {
                    let forgiven = history.is_forgiven(&policy, now) || history.crashes == 0;
                    history.record_exit(&policy, now);
                    let decision = policy.decide(&history, now, random);
                    prop_assert_eq!(&decision, &policy.decide(&history, now, random));
                    prop_assert_eq!(decision.health_warning, !decision.delay.is_zero());
                    if forgiven {
                        prop_assert!(decision.delay.is_zero());
                    } else {
                        prop_assert!(decision.delay >= before);
                    }
                    let near = |step: &Duration| {
                        decision.delay >= step.mul_f64(0.9) && decision.delay <= step.mul_f64(1.1)
                    };
                    prop_assert!(decision.delay.is_zero() || policy.backoff.iter().any(near));
                    before = decision.delay;
                }
            }
            prop_assert!(history.recent.len() <= MOST_AT_ONCE as usize + 1);
        }
    }
}
