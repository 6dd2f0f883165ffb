//! The lanes and their queue, without a link.

use super::*;

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
    let pending = Pending::new(1, 2);
    let (first, first_answer) = pending.enter(&agent("a"), call(1), None);
    assert!(matches!(first, Entered::Write(..)));
    let (second, second_answer) = pending.enter(&agent("a"), call(2), None);
    assert!(matches!(second, Entered::Queued));
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
    let pending = Pending::new(4, 4);
    let (_, first) = pending.enter(&agent("a"), call(1), None);
    assert!(!pending.finish(9, result()).waited);
    assert!(pending.finish(1, result()).waited);
    assert!(!pending.finish(1, result()).waited);
    assert!(first.await.is_ok());
}

#[tokio::test]
async fn a_lane_stays_closed_for_the_late_answer() {
    let pending = Pending::new(1, 4);
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
    let pending = Pending::new(1, 4);
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
    let pending = Pending::new(1, 4);
    let (_, _first) = pending.enter(&agent("a"), call(1), None);
    let (_, _second) = pending.enter(&agent("a"), call(2), None);
    let (_, _third) = pending.enter(&agent("a"), call(3), None);
    assert_eq!(pending.finish(1, result()).next.unwrap().id, 2);
    // Its line is not written yet: there is nothing to cancel, and its lane goes on.
    let (sent, next) = pending.abandon(2, false);
    assert!(!sent);
    assert_eq!(next.unwrap().id, 3);
    assert_eq!(pending.after_writing(2), Caller::HasLeft);
    assert_eq!(pending.after_writing(2), Caller::Waits, "told once");
    // The third is written first, and can then be cancelled by whoever waited for it.
    assert_eq!(pending.before_writing(3), Caller::Waits);
    assert_eq!(pending.after_writing(3), Caller::Waits);
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
    let pending = Pending::new(1, 4);
    let (_, _first) = pending.enter(&agent("a"), call(1), None);
    let (_, _second) = pending.enter(&agent("a"), call(2), None);
    assert_eq!(pending.finish(1, result()).next.unwrap().id, 2);
    assert!(!pending.abandon(2, true).0);
    assert_eq!(pending.view().closed_lanes, 0);
    assert_eq!(pending.before_writing(2), Caller::HasLeft);
    assert_eq!(pending.before_writing(2), Caller::Waits, "gone");
}

#[tokio::test]
async fn a_listing_in_flight_keeps_a_server_busy() {
    // fault S13
    let pending = Pending::new(1, 4);
    let (_, _call) = pending.enter(&agent("a"), call(2), None);
    assert!(!pending.has_other_than(&[2]));
    // A subscription stands open for ever.
    let _subscription = pending.enter_own(3, "subscriptions/listen");
    assert!(!pending.has_other_than(&[2]));
    let _listing = pending.enter_own(1, "tools/list");
    assert!(pending.has_other_than(&[2]));
    // One that lies unread itself is no sign of work.
    assert!(!pending.has_other_than(&[1, 2]));
    assert!(pending.finish(1, result()).waited);
    assert!(!pending.has_other_than(&[2]));
}

#[tokio::test(start_paused = true)]
async fn an_error_without_an_id_that_may_be_for_one_who_left_is_nobodys() {
    // fault S7
    let pending = Pending::new(4, 4);
    let (_, _first) = pending.enter(&agent("a"), call(1), None);
    let (_, _second) = pending.enter(&agent("b"), call(2), None);
    assert_eq!(pending.sole_outstanding(), None, "either may be meant");
    assert!(pending.abandon(1, false).0);
    assert_eq!(pending.sole_outstanding(), None);
    // Its answer comes all the same, so that none but the second can be meant.
    assert!(!pending.finish(1, result()).waited);
    assert_eq!(pending.sole_outstanding(), Some(2));
    assert!(pending.abandon(2, false).0);
    let (_, _third) = pending.enter(&agent("a"), call(3), None);
    assert_eq!(pending.sole_outstanding(), None);
    // After a while the server goes on with it no more.
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(pending.sole_outstanding(), Some(3));
}

#[tokio::test]
async fn an_error_without_an_id_that_may_be_for_a_request_of_our_own_is_no_calls() {
    // fault S7
    let pending = Pending::new(4, 4);
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
    let pending = Pending::new(4, 4);
    let (_, _call) = pending.enter(&agent("a"), call(1), None);
    let _listing = pending.enter_own(2, "tools/list");
    assert!(pending.is_of_method(1, Method::ToolsCall));
    assert!(!pending.is_of_method(1, Method::ToolsList));
    assert!(pending.is_of_method(2, Method::ToolsList));
    assert!(!pending.is_of_method(3, Method::ToolsCall));
}
