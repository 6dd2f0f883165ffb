//! Lines on their way into a real pipe, read by a child that dawdles.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncReadExt;

use super::*;

#[tokio::test]
async fn lines_arrive_whole_and_in_order_when_many_send() {
    let (sender, mut receiver) = pipe::pipe().unwrap();
    let writer = Arc::new(LineWriter::new(sender, 64 << 20));
    let task = {
        let w = Arc::clone(&writer);
        async move {
            w.run(Duration::from_secs(5), |_| ()).await;
        }
    };
    let work = async {
        for i in 0..2000u64 {
            let mut line = format!("{i}:").into_bytes();
            line.extend(std::iter::repeat_n(b'x', (i % 700) as usize));
            line.push(b'\n');
            writer
                .send(
                    Some(i),
                    line,
                    if i % 3 == 0 {
                        Batching::Many
                    } else {
                        Batching::Alone
                    },
                )
                .unwrap();
            if i % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    let read = async {
        let mut text = String::new();
        let mut lines = 0;
        let mut buffer = vec![0; 65536];
        while lines < 2000 {
            let count = receiver.read(&mut buffer).await.unwrap();
            text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            lines = text.matches('\n').count();
        }
        text
    };
    tokio::select! {
        ((), text) = async { tokio::join!(work, read) } => {
            for (i, line) in text.lines().enumerate() {
                assert!(line.starts_with(&format!("{i}:")) && line.ends_with(if i % 700 == 0 { ':' } else { 'x' }));
            }
        }
        () = task => panic!("the writer task ended"),
    }
}

#[tokio::test]
async fn a_child_that_stops_reading_gives_calls_back() {
    // fault S13
    let (sender, _receiver) = pipe::pipe().unwrap();
    let writer = LineWriter::new(sender, 64 << 20);
    let back = AtomicU64::new(0);
    let mut big = vec![b'x'; 1 << 20];
    big.push(b'\n');
    writer.send(Some(1), big.clone(), Batching::Alone).unwrap();
    writer.send(Some(2), big.clone(), Batching::Alone).unwrap();
    let run = writer.run(Duration::from_millis(50), |call| {
        back.fetch_add(call, Ordering::Relaxed);
    });
    let waited = tokio::time::timeout(Duration::from_millis(500), run).await;
    assert!(waited.is_err());
    assert_eq!(back.load(Ordering::Relaxed), 3);
    assert_eq!(
        writer.send(Some(3), big, Batching::Alone),
        Err(SendError::NotReading)
    );
}

#[tokio::test]
async fn what_waits_for_a_child_that_does_not_read_is_bounded() {
    // fault S13
    const LIMIT: usize = 64 << 10;
    let (sender, mut receiver) = pipe::pipe().unwrap();
    let writer = LineWriter::new(sender, LIMIT);
    let line = |length: usize| {
        let mut line = vec![b'x'; length - 1];
        line.push(b'\n');
        line
    };
    // Longer than the pipe holds: whatever follows has to wait behind its rest.
    let first = 1 << 20;
    writer.send(Some(1), line(first), Batching::Alone).unwrap();
    let mut waiting = 0;
    for length in [LIMIT / 2, LIMIT / 4, LIMIT / 4] {
        let company = [Batching::Alone, Batching::Many][waiting % 2];
        writer.send(Some(2), line(length), company).unwrap();
        waiting += length;
        assert_eq!(writer.state.lock().queued_bytes, waiting);
    }
    assert_eq!(waiting, LIMIT);
    // Full to the byte: the shortest line is one too many, of a call or of nobody.
    for call in [Some(3), None] {
        for company in [Batching::Alone, Batching::Many] {
            let refused = writer.send(call, line(1), company);
            assert_eq!(refused, Err(SendError::NotReading));
        }
    }
    assert_eq!(writer.state.lock().queued_bytes, LIMIT);
    // What was taken is written as soon as the child reads, and there is room again.
    let run = writer.run(Duration::from_secs(60), |_| ());
    let mut all = vec![0; first + LIMIT];
    tokio::select! {
        read = receiver.read_exact(&mut all) => assert_eq!(read.unwrap(), first + LIMIT),
        _ = run => panic!("the writer task ended"),
    }
    assert_eq!(all.iter().filter(|byte| **byte == b'\n').count(), 4);
    assert_eq!(writer.state.lock().queued_bytes, 0);
}

#[tokio::test]
async fn what_was_taken_back_is_never_written() {
    // fault S13
    let (sender, mut receiver) = pipe::pipe().unwrap();
    let writer = LineWriter::new(sender, 64 << 20);
    let line = |letter: u8, length: usize| {
        let mut line = vec![letter; length];
        line.push(b'\n');
        line
    };
    // The first fills the pipe; the second and third are gathered into the batch behind it.
    writer
        .send(Some(1), line(b'a', 1 << 20), Batching::Alone)
        .unwrap();
    let back = Mutex::new(Vec::new());
    let stalled = Notify::new();
    let run = writer.run(Duration::from_millis(50), |call| {
        back.lock().push(call);
        stalled.notify_one();
    });
    let work = async {
        stalled.notified().await;
        let mut text = vec![0; (1 << 20) + 1];
        receiver.read_exact(&mut text).await.unwrap();
        while writer
            .send(Some(3), line(b'c', 10), Batching::Alone)
            .is_err()
        {
            tokio::task::yield_now().await;
        }
        let mut next = vec![0; 11];
        receiver.read_exact(&mut next).await.unwrap();
        next
    };
    writer
        .send(Some(2), line(b'b', 10), Batching::Alone)
        .unwrap();
    tokio::select! {
        next = work => assert_eq!(next, line(b'c', 10)),
        _ = run => panic!("the writer task ended"),
    }
    assert_eq!(*back.lock(), [1, 2]);
}

#[test]
fn only_the_line_that_was_begun_stays_in_a_batch() {
    // fault S13
    let batch = |written| {
        let mut batch = Batch::default();
        for (call, bytes) in [(Some(1), "aa\n"), (None, "bb\n"), (Some(2), "cc\n")] {
            let bytes = bytes.as_bytes().to_vec();
            batch.push(Line { call, bytes });
        }
        batch.written = written;
        let back = batch.take_back();
        (String::from_utf8(batch.bytes).unwrap(), back)
    };
    assert_eq!(batch(0), (String::new(), vec![1, 2]));
    assert_eq!(batch(1), ("aa\n".into(), vec![1, 2]));
    assert_eq!(batch(3), ("aa\n".into(), vec![2]));
    assert_eq!(batch(4), ("aa\nbb\n".into(), vec![2]));
    assert_eq!(batch(8), ("aa\nbb\ncc\n".into(), vec![2]));
    assert_eq!(batch(9), ("aa\nbb\ncc\n".into(), vec![]));
}
