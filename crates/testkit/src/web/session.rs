//! The clients there are: sessions of the handshake era by their id, and one conversation for all
//! requests of the stateless era. A session keeps its streams, so that they can be taken up again.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::stream::Stream;
use super::{Service, Talk};

/// Streams that a session keeps.
const KEPT: usize = 256;

pub(crate) struct Sessions {
    service: Arc<dyn Service>,
    table: Mutex<HashMap<String, Arc<Session>>>,
    stateless: OnceLock<Arc<Session>>,
    count: AtomicU64,
    random: RandomState,
}

pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) talk: Arc<dyn Talk>,
    /// What is said outside of any request.
    pub(crate) own: Arc<Stream>,
    /// How much of that was written out.
    pub(crate) heard: AtomicU64,
    streams: Mutex<VecDeque<Arc<Stream>>>,
    count: AtomicU64,
}

impl Sessions {
    pub(crate) fn new(service: Arc<dyn Service>) -> Self {
        Self {
            service,
            table: Mutex::default(),
            stateless: OnceLock::new(),
            count: AtomicU64::new(0),
            random: RandomState::new(),
        }
    }

    /// Opens a session.
    pub(crate) fn open(&self) -> Arc<Session> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}-{number}", self.random.hash_one(number));
        let session = Arc::new(Session::new(&*self.service, id.clone()));
        let mut table = self.table.lock().expect("nothing panics under this lock");
        table.insert(id, Arc::clone(&session));
        session
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Session>> {
        let table = self.table.lock().expect("nothing panics under this lock");
        table.get(id).cloned()
    }

    /// Ends a session; its stream ends with it.
    pub(crate) fn close(&self, id: &str) -> bool {
        let mut table = self.table.lock().expect("nothing panics under this lock");
        let closed = table.remove(id);
        if let Some(session) = &closed {
            session.own.close();
        }
        closed.is_some()
    }

    /// Returns the one conversation with all who have no session.
    pub(crate) fn stateless(&self) -> &Arc<Session> {
        self.stateless
            .get_or_init(|| Arc::new(Session::new(&*self.service, String::new())))
    }
}

impl Session {
    fn new(service: &dyn Service, id: String) -> Self {
        let own = Arc::new(Stream::new(0));
        Self {
            id,
            talk: service.meet(Arc::clone(&own)),
            own,
            heard: AtomicU64::new(0),
            streams: Mutex::default(),
            count: AtomicU64::new(1),
        }
    }

    /// Begins a stream for the answer to a request.
    pub(crate) fn stream(&self) -> Arc<Stream> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let stream = Arc::new(Stream::new(number));
        let mut streams = self.streams.lock().expect("nothing panics under this lock");
        streams.push_back(Arc::clone(&stream));
        if streams.len() > KEPT {
            streams.pop_front();
        }
        stream
    }

    /// Finds what an event id speaks of: the stream, and how many of its messages were heard.
    pub(crate) fn resume(&self, event: &str) -> Option<(Arc<Stream>, u64)> {
        let (number, position) = event.split_once('-')?;
        let (number, position): (u64, u64) = (number.parse().ok()?, position.parse().ok()?);
        if number == 0 {
            return Some((Arc::clone(&self.own), position));
        }
        let streams = self.streams.lock().expect("nothing panics under this lock");
        let found = streams.iter().find(|stream| stream.number == number);
        found.map(|stream| (Arc::clone(stream), position))
    }
}
