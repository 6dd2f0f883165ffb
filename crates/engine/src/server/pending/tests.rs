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
    let (first, first_answer) = pending.enter(&agent("a"), call(1), None);
    assert!(matches!(first, Entered::Write(..)));
    let (second, second_answer) = pending.enter(&agent("a"), call(2), None);
    assert!(matches!(second, Entered::Queued(_)));
    let (_third, _) = pending.enter(&agent("a"), call(3), None);
    let (fourth, _) = pending.enter(&agent("a"), call(4), None);
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
    let (_, first) = pending.enter(&agent("a"), call(1), None);
    assert!(!pending.finish(9, result()).waited);
    assert!(pending.finish(1, result()).waited);
    assert!(!pending.finish(1, result()).waited);
    assert!(first.await.is_ok());
}

#[tokio::test]
async fn a_lane_stays_closed_for_the_late_answer() {
    let pending = Pending::new(1, 4, LATE);
    let (_, answer) = pending.enter(&agent("a"), call(1), None);
    let (_, _second) = pending.enter(&agent("a"), call(2), None);
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
    let (_, _first) = pending.enter(&agent("a"), call(1), None);
    let (_, _second) = pending.enter(&agent("a"), call(2), None);
    let (_, _third) = pending.enter(&agent("a"), call(3), None);
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
    let (_, _first) = pending.enter(&agent("a"), call(1), None);
    let (_, _second) = pending.enter(&agent("a"), call(2), None);
    let (_, _third) = pending.enter(&agent("a"), call(3), None);
    assert_eq!(pending.finish(1, result()).next.unwrap().id, 2);
    // Its line is not written yet: there is nothing to cancel, and its lane goes on.
    let (sent, next) = pending.abandon(2, false);
    assert!(!sent);
    assert_eq!(next.unwrap().id, 3);
    assert_eq!(pending.after_writing(2), CallerPresence::HasLeft);
    assert_eq!(pending.after_writing(2), CallerPresence::Waits, "told once");
    // The third is written first, and can then be cancelled by whoever waited for it.
    assert_eq!(pending.before_writing(3), CallerPresence::Waits);
    assert_eq!(pending.after_writing(3), CallerPresence::Waits);
    let (sent, next) = pending.abandon(3, false);
    assert!(sent && next.is_none());
    assert_eq!(pending.view().in_flight, 0);
    assert!(matches!(
        pending.enter(&agent("a"), call(4), None).0,
        Entered::Write(_, 0)
    ));
}

#[tokio::test]
async fn a_line_whose_caller_left_before_it_was_written_is_not_written() {
    // fault A4
    let pending = Pending::new(1, 4, LATE);
    let (_, _first) = pending.enter(&agent("a"), call(1), None);
    let (_, _second) = pending.enter(&agent("a"), call(2), None);
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
    let (_, _call) = pending.enter(&agent("a"), call(1), None);
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
    let (_, _call) = pending.enter(&agent("a"), call(1), None);
    let _listing = pending.enter_own(2, "tools/list");
    assert!(pending.is_of_method(1, Method::ToolsCall));
    assert!(!pending.is_of_method(1, Method::ToolsList));
    assert!(pending.is_of_method(2, Method::ToolsList));
    assert!(!pending.is_of_method(3, Method::ToolsCall));
}

/// Returns how a client hears of a call, in a session if it has one, and what it hears.
fn caller_channel(session: Option<u128>) -> (Option<CallerChannel>, mpsc::Receiver<CallEvent>) {
    let (events, heard) = mpsc::channel(4);
    let client = Arc::new(Client {
        era: gantry_model::era::Era::Handshake,
        channel: None,
        capabilities: ClientCapabilities::NOTHING,
        session,
        progress_token: None,
        log_level: None,
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
    let (_, _one) = pending.enter(&a, call(1), first.clone());
    assert_eq!(pending.recipient(), Some(Recipient::Call(1)));
    let (_, _two) = pending.enter(&a, call(2), first);
    let only = Some(Recipient::Session((a.clone(), Some(1))));
    assert_eq!(pending.recipient(), only);
    // The newest that hears, and none that was tried.
    let (gone, heard) = caller_channel(Some(1));
    drop(heard);
    let (_, _three) = pending.enter(&a, call(3), gone);
    let told = |but: &[u64]| pending.reachable_call(None, but).map(|told| told.id);
    assert_eq!(told(&[]), Some(2));
    assert_eq!(told(&[2]), Some(1));
    assert_eq!(told(&[2, 1]), None);
    // Another session of the same agent is somebody else, and so is another agent.
    for (agent, session) in [(&a, Some(2)), (&b, Some(1)), (&a, None)] {
        let (other, _heard) = caller_channel(session);
        let (_, other) = pending.enter(agent, call(9), other);
        assert_eq!(pending.recipient(), None, "{agent} {session:?}");
        assert_eq!(told(&[]), None);
        drop(other);
        // One that was left may still be meant.
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
    let (_, one) = pending.enter(&a, call(1), left.clone());
    let (_, two) = pending.enter(&a, call(2), left);
    let Some(Recipient::Session(session)) = pending.recipient() else {
        panic!("all calls are of one session");
    };
    let (other, _heard) = caller_channel(Some(2));
    let (_, _three) = pending.enter(&b, call(3), other);
    drop((heard, one, two));
    pending.abandon(1, false);
    pending.abandon(2, false);
    for _ in 0..2 {
        assert!(pending.reachable_call(Some(&session), &[]).is_none());
        // Also when nothing is abandoned any more.
        tokio::time::advance(2 * LATE).await;
    }
}

#[tokio::test]
async fn without_sessions_only_the_only_call_is_meant() {
    let pending = Pending::new(8, 4, LATE);
    let (client, _heard) = caller_channel(None);
    let (_, _one) = pending.enter(&agent("a"), call(1), client.clone());
    assert_eq!(pending.recipient(), Some(Recipient::Call(1)));
    let (_, _two) = pending.enter(&agent("a"), call(2), client);
    assert_eq!(pending.recipient(), None);
}

#[tokio::test(start_paused = true)]
async fn all_calls_wait_while_their_client_is_asked_for_any() {
    let pending = Pending::new(8, 4, LATE);
    let (_, _one) = pending.enter(&agent("a"), call(1), None);
    pending.pause_all(true);
    pending.pause_all(true);
    let (_, _two) = pending.enter(&agent("a"), call(2), None);
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
