//! The lanes and their queue, without a link.

use std::sync::Arc;

use gantry_model::mcp::ClientCapabilities;
use tokio::sync::mpsc;

use super::*;
use crate::request::{CallEvent, Client};

const LATE: Duration = Duration::from_secs(10);

fn agent(name: &str) -> AgentName {
    name.parse().unwrap()
}

fn call(id: u64) -> Outgoing {
    Outgoing {
        id,
        line: vec![],
        head: None,
        method: Some(Method::ToolsCall),
    }
}

fn result() -> Answer {
    Answer::Result(Bytes::new().into())
}

#[tokio::test]
async fn one_lane_lets_one_call_through_at_a_time() {
    // row 1.7
    let pending = Pending::new(1, 2, LATE);
    let (first, first_answer) = pending.enter((&agent("a"), 0), call(1), None);
    assert!(matches!(first, Entered::Write(..)));
    let (second, second_answer) = pending.enter((&agent("a"), 0), call(2), None);
    assert!(matches!(second, Entered::Queued(_)));
    let (_third, _) = pending.enter((&agent("a"), 0), call(3), None);
    let (fourth, _) = pending.enter((&agent("a"), 0), call(4), None);
    assert!(matches!(fourth, Entered::Full)); // fault A5
    let Finished { waited, next } = pending.finish(1, result());
    assert!(waited);
    assert_eq!(next.unwrap().id, 2);
    assert!(matches!(first_answer.await, Ok(Answer::Result(_))));
    pending.end(&Failure::NotReading);
    assert!(matches!(
        second_answer.await,
        Ok(Answer::Failed(Failure::NotReading))
    ));
}

#[tokio::test]
async fn an_answer_reaches_its_call_once_and_no_other() {
    // fault S9
    let pending = Pending::new(4, 4, LATE);
    let (_, first) = pending.enter((&agent("a"), 0), call(1), None);
    assert!(!pending.finish(9, result()).waited);
    assert!(pending.finish(1, result()).waited);
    assert!(!pending.finish(1, result()).waited);
    assert!(first.await.is_ok());
}

#[tokio::test]
async fn a_lane_stays_closed_for_the_late_answer() {
    let pending = Pending::new(1, 4, LATE);
    let (_, answer) = pending.enter((&agent("a"), 0), call(1), None);
    let (_, _second) = pending.enter((&agent("a"), 0), call(2), None);
    drop(answer);
    let (sent, next) = pending.abandon(1, true);
    assert!(sent && next.is_none());
    assert_eq!(pending.view().closed_lanes, 1);
    let Finished { waited, next } = pending.finish(1, result());
    assert!(!waited);
    assert_eq!(next.unwrap().id, 2);
    assert_eq!(pending.view().closed_lanes, 0);
}

#[tokio::test]
async fn a_call_that_leaves_the_queue_takes_no_lane() {
    let pending = Pending::new(1, 4, LATE);
    let (_, _first) = pending.enter((&agent("a"), 0), call(1), None);
    let (_, _second) = pending.enter((&agent("a"), 0), call(2), None);
    let (_, _third) = pending.enter((&agent("a"), 0), call(3), None);
    assert!(!pending.abandon(2, false).0);
    assert_eq!(pending.finish(1, result()).next.unwrap().id, 3);
    assert_eq!(
        pending.view(),
        QueueView {
            in_flight: 1,
            waiting: 0,
            lanes: 1,
            closed_lanes: 0
        }
    );
}

#[tokio::test]
async fn a_caller_that_leaves_while_its_line_is_handed_over_is_told_of_after_the_line() {
    // fault A4
    let pending = Pending::new(1, 4, LATE);
    let (_, _first) = pending.enter((&agent("a"), 0), call(1), None);
    let (_, _second) = pending.enter((&agent("a"), 0), call(2), None);
    let (_, _third) = pending.enter((&agent("a"), 0), call(3), None);
    assert_eq!(pending.finish(1, result()).next.unwrap().id, 2);
    // Its line is not written yet: there is nothing to cancel, and its lane is passed on.
    let (sent, next) = pending.abandon(2, false);
    assert!(!sent);
    assert_eq!(next.unwrap().id, 3);
    assert_eq!(pending.after_writing(2), CallerPresence::HasLeft);
    assert_eq!(pending.after_writing(2), CallerPresence::Waits, "told once");
    // The third is written first, and can then be cancelled by its caller.
    assert_eq!(pending.before_writing(3), CallerPresence::Waits);
    assert_eq!(pending.after_writing(3), CallerPresence::Waits);
    let (sent, next) = pending.abandon(3, false);
    assert!(sent && next.is_none());
    assert_eq!(pending.view().in_flight, 0);
    assert!(matches!(
        pending.enter((&agent("a"), 0), call(4), None).0,
        Entered::Write(_, 0)
    ));
}

#[tokio::test]
async fn a_line_whose_caller_left_before_it_was_written_is_not_written() {
    // fault A4
    let pending = Pending::new(1, 4, LATE);
    let (_, _first) = pending.enter((&agent("a"), 0), call(1), None);
    let (_, _second) = pending.enter((&agent("a"), 0), call(2), None);
    assert_eq!(pending.finish(1, result()).next.unwrap().id, 2);
    assert!(!pending.abandon(2, true).0);
    assert_eq!(pending.view().closed_lanes, 0);
    assert_eq!(pending.before_writing(2), CallerPresence::HasLeft);
    assert_eq!(pending.before_writing(2), CallerPresence::Waits, "gone");
}

#[tokio::test]
async fn an_error_without_an_id_that_may_be_for_a_request_of_our_own_is_no_calls() {
    // fault S7
    let pending = Pending::new(4, 4, LATE);
    let (_, _call) = pending.enter((&agent("a"), 0), call(1), None);
    let _subscription = pending.enter_own(2, "subscriptions/listen");
    let _listing = pending.enter_own(3, "tools/list");
    assert_eq!(pending.sole_outstanding(), None);
    assert!(pending.finish(3, result()).waited);
    assert_eq!(pending.sole_outstanding(), Some(1));
}

#[tokio::test]
async fn a_call_is_known_by_its_method() {
    // fault S20
    let pending = Pending::new(4, 4, LATE);
    let (_, _call) = pending.enter((&agent("a"), 0), call(1), None);
    let _listing = pending.enter_own(2, "tools/list");
    assert!(pending.is_of_method(1, Method::ToolsCall));
    assert!(!pending.is_of_method(1, Method::ToolsList));
    assert!(pending.is_of_method(2, Method::ToolsList));
    assert!(!pending.is_of_method(3, Method::ToolsCall));
}

/// Returns the channel of a client, in a session if it has one, and the receiver of its events.
fn caller_channel(session: Option<u128>) -> (Option<CallerChannel>, mpsc::Receiver<CallEvent>) {
    let (events, heard) = mpsc::channel(4);
    let client = Arc::new(Client {
        era: gantry_model::era::Era::Handshake,
        channel: None,
        capabilities: ClientCapabilities::NOTHING,
        session,
        progress_token: None,
        log_level: None,
        withholds_texts: false,
        events,
    });
    (Some(CallerChannel { client, asks: None }), heard)
}

// fault T4
#[tokio::test(start_paused = true)]
async fn what_is_said_of_no_call_is_for_the_only_call_or_the_only_session() {
    let pending = Pending::new(8, 4, LATE);
    let (a, b) = (agent("a"), agent("b"));
    assert_eq!(pending.recipient(), None);
    let (first, _first) = caller_channel(Some(1));
    let (_, _one) = pending.enter((&a, 0), call(1), first.clone());
    assert_eq!(pending.recipient(), Some(Recipient::Call(1)));
    let (_, _two) = pending.enter((&a, 0), call(2), first);
    let only = Some(Recipient::Session((a.clone(), Some(1))));
    assert_eq!(pending.recipient(), only);
    // The newest that can be reached, and none that was tried.
    let (gone, heard) = caller_channel(Some(1));
    drop(heard);
    let (_, _three) = pending.enter((&a, 0), call(3), gone);
    let told = |but: &[u64]| pending.reachable_call(None, but).map(|told| told.id);
    assert_eq!(told(&[]), Some(2));
    assert_eq!(told(&[2]), Some(1));
    assert_eq!(told(&[2, 1]), None);
    // Another session of the same agent is another client, and so is another agent.
    for (agent, session) in [(&a, Some(2)), (&b, Some(1)), (&a, None)] {
        let (other, _heard) = caller_channel(session);
        let (_, other) = pending.enter((agent, 0), call(9), other);
        assert_eq!(pending.recipient(), None, "{agent} {session:?}");
        assert_eq!(told(&[]), None);
        drop(other);
        // The message may concern an abandoned call.
        pending.abandon(9, false);
        assert_eq!(pending.recipient(), None);
        tokio::time::advance(LATE).await;
        assert_eq!(pending.recipient(), only, "forgotten in time");
    }
}

// fault T4
#[tokio::test(start_paused = true)]
async fn a_question_to_a_session_that_has_left_is_asked_of_nobody_else() {
    let pending = Pending::new(8, 4, LATE);
    let (a, b) = (agent("a"), agent("b"));
    let (left, heard) = caller_channel(Some(1));
    let (_, one) = pending.enter((&a, 0), call(1), left.clone());
    let (_, two) = pending.enter((&a, 0), call(2), left);
    let Some(Recipient::Session(session)) = pending.recipient() else {
        panic!("all calls are of one session");
    };
    let (other, _heard) = caller_channel(Some(2));
    let (_, _three) = pending.enter((&b, 0), call(3), other);
    drop((heard, one, two));
    pending.abandon(1, false);
    pending.abandon(2, false);
    for _ in 0..2 {
        assert!(pending.reachable_call(Some(&session), &[]).is_none());
        // Also after the abandoned calls have expired.
        tokio::time::advance(2 * LATE).await;
    }
}

#[tokio::test]
async fn without_sessions_only_the_only_call_is_meant() {
    let pending = Pending::new(8, 4, LATE);
    let (client, _heard) = caller_channel(None);
    let (_, _one) = pending.enter((&agent("a"), 0), call(1), client.clone());
    assert_eq!(pending.recipient(), Some(Recipient::Call(1)));
    let (_, _two) = pending.enter((&agent("a"), 0), call(2), client);
    assert_eq!(pending.recipient(), None);
}

#[tokio::test(start_paused = true)]
async fn all_calls_wait_while_their_client_is_asked_for_any() {
    let pending = Pending::new(8, 4, LATE);
    let (_, _one) = pending.enter((&agent("a"), 0), call(1), None);
    pending.pause_all(true);
    pending.pause_all(true);
    let (_, _two) = pending.enter((&agent("a"), 0), call(2), None);
    tokio::time::advance(LATE).await;
    pending.pause_all(false);
    for id in [1, 2] {
        assert_eq!(pending.activity(id).unwrap().1, LATE);
    }
    pending.pause_all(false);
    tokio::time::advance(LATE).await;
    for id in [1, 2] {
        let (active, paused) = pending.activity(id).unwrap();
        assert_eq!((active.elapsed(), paused), (LATE, LATE));
    }
}

/// Answers a call and returns which one gets its lane.
fn next_after(pending: &Pending, id: u64) -> Option<u64> {
    pending.finish(id, result()).next.map(|next| next.id)
}

#[tokio::test]
async fn an_agent_without_a_lane_finds_one_however_many_calls_another_makes() {
    // row 1.7
    let pending = Pending::new(4, 16, LATE);
    let (a, b, c) = (agent("a"), agent("b"), agent("c"));
    let mut answers = Vec::new();
    let mut enter = |agent: &AgentName, others, id| {
        let (entered, answer) = pending.enter((agent, others), call(id), None);
        answers.push(answer);
        matches!(entered, Entered::Write(..))
    };
    let sent: Vec<u64> = (1..=8).filter(|id| enter(&a, 1, *id)).collect();
    assert_eq!(sent, [1, 2, 3], "one lane is left to another agent");
    assert!(enter(&b, 1, 10), "which finds it at once");
    assert!(!enter(&b, 1, 11), "and waits for a second");
    assert_eq!(next_after(&pending, 1), Some(11), "who has fewer is next");
    assert_eq!(next_after(&pending, 2), Some(4), "equals take turns");
    // Who has no lane any more leaves the last one free for its next call.
    assert_eq!(next_after(&pending, 10), Some(5));
    assert_eq!(next_after(&pending, 11), None);
    assert!(enter(&b, 1, 12));
    // An agent that was not reckoned with is next.
    assert!(!enter(&c, 2, 20));
    assert_eq!(next_after(&pending, 3), Some(20));
    assert_eq!(pending.view().in_flight, 4);
}

#[tokio::test]
async fn an_agent_that_is_alone_has_all_lanes() {
    // row 1.7
    let pending = Pending::new(2, 4, LATE);
    for id in 1..=2 {
        let (entered, _) = pending.enter((&agent("a"), 0), call(id), None);
        assert!(matches!(entered, Entered::Write(..)));
    }
    // One that comes is next, also before calls that wait for longer.
    let (_, _third) = pending.enter((&agent("a"), 0), call(3), None);
    let (_, _fourth) = pending.enter((&agent("b"), 1), call(4), None);
    assert_eq!(next_after(&pending, 1), Some(4));
    assert_eq!(next_after(&pending, 4), None, "it is reserved for b");
    assert_eq!(next_after(&pending, 2), Some(3));
}

#[tokio::test]
async fn a_lane_that_waits_for_a_late_answer_counts_for_who_left_it() {
    // row 1.7
    let pending = Pending::new(2, 4, LATE);
    let (a, b) = (agent("a"), agent("b"));
    let (_, first) = pending.enter((&a, 1), call(1), None);
    let (second, _second) = pending.enter((&a, 1), call(2), None);
    assert!(matches!(second, Entered::Queued(_)));
    drop(first);
    assert!(pending.abandon(1, true).1.is_none());
    let (entered, _answer) = pending.enter((&b, 1), call(3), None);
    assert!(matches!(entered, Entered::Write(..)));
    assert_eq!(next_after(&pending, 1), Some(2));
}
