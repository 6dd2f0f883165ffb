//! One thread that runs jobs at their time, so that a thousand delayed answers need no thousand
//! threads. Jobs must be short: they share the thread. Entry point: [`Timer::after`].

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::wait;

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Timer {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: BinaryHeap<Reverse<Due>>,
    serial: u64,
}

/// A job and its time; the serial keeps jobs of the same moment in order.
struct Due {
    at: Instant,
    serial: u64,
    job: Job,
}

impl Timer {
    pub(crate) fn start() -> Arc<Self> {
        let timer = Arc::new(Self {
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        let running = Arc::clone(&timer);
        thread::spawn(move || running.run());
        timer
    }

    pub(crate) fn after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        let at = wait::now() + delay;
        let mut queue = self.queue.lock().expect("jobs run outside the lock");
        queue.serial += 1;
        let serial = queue.serial;
        queue.jobs.push(Reverse(Due {
            at,
            serial,
            job: Box::new(job),
        }));
        self.changed.notify_one();
    }

    fn run(&self) {
        let mut queue = self.queue.lock().expect("jobs run outside the lock");
        loop {
            let now = wait::now();
            let wait = queue
                .jobs
                .peek()
                .map(|Reverse(due)| due.at.saturating_duration_since(now));
            queue = match wait {
                None => self.changed.wait(queue).expect("jobs run outside the lock"),
                Some(Duration::ZERO) => {
                    let due = queue.jobs.pop();
                    drop(queue);
                    if let Some(Reverse(due)) = due {
                        (due.job)();
                    }
                    self.queue.lock().expect("jobs run outside the lock")
                }
                Some(left) => {
                    self.changed
                        .wait_timeout(queue, left)
                        .expect("jobs run outside the lock")
                        .0
                }
            };
        }
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}
