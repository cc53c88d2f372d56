//! Outages of a server, told to a user who would wait in silence.

use crate::ClientError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time after which an outage is told: a restart of the server is over sooner.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// A receiver of outages; without one nothing is told. Copies of a client share it, so that each outage is told once.
#[derive(Clone, Default)]
pub(crate) struct Outages {
    receiver: Option<Arc<Receiver>>,
}

struct Receiver {
    is_told: AtomicBool,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl Outages {
    pub fn telling(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let receiver = Receiver { is_told: AtomicBool::new(false), tell: Box::new(tell) };
        Self { receiver: Some(Arc::new(receiver)) }
    }

    /// Takes note of a request to `url` that is retried after this time.
    pub fn lasts(&self, url: &str, elapsed: Duration, error: &ClientError) {
        if let Some(receiver) = &self.receiver
            && error.is_silence()
            && elapsed >= TOLD_AFTER
            && !receiver.is_told.swap(true, Ordering::AcqRel)
        {
            (receiver.tell)(url);
        }
    }

    /// Takes note of an answer: the next outage is another one.
    pub fn is_over(&self) {
        if let Some(receiver) = &self.receiver {
            receiver.is_told.store(false, Ordering::Release);
        }
    }
}

impl fmt::Debug for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outages").field("are_told", &self.receiver.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Outages, TOLD_AFTER};
    use crate::{Blocking, ClientError};
    use ids::JobId;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    #[test]
    fn each_outage_is_told_once() {
        let nobody = Blocking::new("http://127.0.0.1:1").unwrap();
        let error = nobody.run(async |client| client.progress(JobId(1)).await).unwrap_err();
        let (sender, told) = sync_channel(10);
        let outages = Outages::telling(move |url| sender.send(url.to_string()).unwrap());
        let copy = outages.clone();
        outages.lasts("a", TOLD_AFTER - Duration::from_millis(1), &error);
        assert!(told.try_recv().is_err());
        for each in [&outages, &copy] {
            each.lasts("b", TOLD_AFTER, &error);
        }
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["b"]);
        outages.is_over();
        outages.lasts("c", TOLD_AFTER, &ClientError::NotOurs { url: String::new(), status: 500 });
        assert!(told.try_recv().is_err());
        outages.lasts("d", TOLD_AFTER, &error);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["d"]);
    }
}
