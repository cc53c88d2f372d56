//! Checks the rights that callers present to this node's data port, and keeps the rights that this node presents to
//! others: tokens of jobs and rights to files, signed by the server. When the server signs with a new key, the node
//! first asks for new tokens. Only after it has them does the time begin after which it refuses tokens signed by
//! earlier keys: while no server responds, nothing changes.

use crate::link::node_link::NodeLink;
use api::data_access::{DataKeys, JobToken, SecretText, TokensAnswer};
use dataport::{JobTokens, Token};
use ids::{IntermediateId, JobId, NodeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trust::{DataKey, DataRight, FileGrant, FileRight, StoredGrant};

/// Time for which tokens of an earlier key stay valid.
const EARLIER_GRACE: Duration = Duration::from_secs(600);
/// The same time if a removed node may have such tokens.
const WITHDRAWN_GRACE: Duration = Duration::from_secs(2);
/// Maximum number of remembered tokens of a job: of the newest key, and of earlier ones.
const TOKENS_MAX: usize = 3;
/// Maximum number of jobs whose tokens were recently accepted.
const ADMITTED_JOBS_MAX: usize = 4096;
/// Least time between two requests for tokens.
const RENEW_EVERY: Duration = Duration::from_millis(200);
/// Pause before a retry when the server did not respond.
const RENEW_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The rights of this node at other data ports, and the keys for checking the rights of others.
pub struct DataAccess {
    node: NodeId,
    link: Arc<NodeLink>,
    inner: Mutex<Inner>,
    /// Held during a request, with the time of the last one.
    renewing: Mutex<Option<Instant>>,
}

struct Inner {
    keys: Vec<KnownKey>,
    clock: ServerClock,
    /// Tokens of jobs in which this node is involved, newest first.
    shown: BTreeMap<JobId, Vec<Token>>,
    /// Accepted tokens of others, with the key that signed each.
    admitted: BTreeMap<JobId, Vec<(Token, DataKey)>>,
}

/// A known key; the newest is the first.
#[derive(Clone, Copy)]
struct KnownKey {
    key: DataKey,
    /// Time after which node tokens of this key are refused.
    ends: Option<Instant>,
}

/// The time of the server, which determines the expiry of grants: the local clock may be years off.
#[derive(Clone, Copy)]
struct ServerClock {
    told_seconds: u64,
    told_at: Instant,
}

impl Inner {
    fn new(keys: &DataKeys) -> Self {
        let (shown, admitted) = (BTreeMap::new(), BTreeMap::new());
        let clock = ServerClock { told_seconds: keys.now_seconds, told_at: Instant::now() };
        let mut inner = Self { keys: Vec::new(), clock, shown, admitted };
        inner.learn(keys);
        inner.let_earlier_end(keys);
        inner
    }

    /// Accepts the newest key from now on.
    fn learn(&mut self, told: &DataKeys) {
        // A late message: the answer to a request was faster.
        if self.keys.iter().skip(1).any(|known| known.key.text() == told.current) {
            return;
        }
        let texts = std::iter::once(&told.current).chain(told.earlier.iter().map(|earlier| &earlier.key));
        let keys = texts.filter_map(|text| DataKey::parse(text));
        let ends = |key| self.keys.iter().find(|known| known.key == key).and_then(|known| known.ends);
        self.keys = keys.map(|key| KnownKey { key, ends: ends(key) }).collect();
        self.clock = ServerClock { told_seconds: told.now_seconds, told_at: Instant::now() };
    }

    /// Starts the expiry of earlier keys, because this node has tokens of the newest key.
    fn let_earlier_end(&mut self, told: &DataKeys) {
        let now = Instant::now();
        for earlier in &told.earlier {
            let grace = if earlier.is_withdrawn { WITHDRAWN_GRACE } else { EARLIER_GRACE };
            let known = self.keys.iter_mut().find(|known| known.key.text() == earlier.key);
            if let Some(known) = known {
                known.ends = Some(known.ends.map_or(now + grace, |ends| ends.min(now + grace)));
            }
        }
    }

    /// Returns the keys whose node tokens are accepted.
    fn good_keys(&self) -> impl Iterator<Item = DataKey> {
        let now = Instant::now();
        self.keys.iter().filter(move |known| known.ends.is_none_or(|ends| now < ends)).map(|known| known.key)
    }

    fn add(&mut self, token: &JobToken) {
        let Some(new) = Token::new(token.token.0.clone()) else { return };
        let shown = self.shown.entry(token.job).or_default();
        shown.retain(|known| !known.is(new.text()));
        shown.insert(0, new);
        shown.truncate(TOKENS_MAX);
    }

    fn admits_to_job(&mut self, job: JobId, text: &str) -> bool {
        let good: Vec<DataKey> = self.good_keys().collect();
        let known = self.admitted.get(&job);
        if known.is_some_and(|known| known.iter().any(|(token, key)| token.is(text) && good.contains(key))) {
            return true;
        }
        let right = DataRight::Job(job.0);
        let Some(key) = good.into_iter().find(|key| key.has_signed(&right, text)) else { return false };
        if let Some(token) = Token::new(text.to_string()) {
            let known = self.admitted.entry(job).or_default();
            known.insert(0, (token, key));
            known.truncate(TOKENS_MAX);
            if self.admitted.len() > ADMITTED_JOBS_MAX {
                self.admitted.pop_first();
            }
        }
        true
    }

    fn admits_to_stored(&self, shown: &str) -> Option<StoredGrant> {
        let grant = StoredGrant::claimed(shown, self.server_seconds())?;
        // It belongs to a user or an order, and not to a node: it is valid until its expiry.
        let mut keys = self.keys.iter();
        keys.any(|known| known.key.has_signed(&DataRight::Stored(grant), shown)).then_some(grant)
    }

    fn server_seconds(&self) -> u64 {
        self.clock.told_seconds.saturating_add(self.clock.told_at.elapsed().as_secs())
    }
}

impl DataAccess {
    /// Creates the access with the keys that the server sent when this node joined.
    pub fn new(link: Arc<NodeLink>) -> Arc<Self> {
        let (node, inner) = (link.node(), Mutex::new(Inner::new(link.data_keys())));
        Arc::new(Self { node, link, inner, renewing: Mutex::new(None) })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds tokens that admit this node to data of a job.
    pub(crate) fn add(&self, tokens: impl IntoIterator<Item = JobToken>) {
        let mut inner = self.inner();
        tokens.into_iter().for_each(|token| inner.add(&token));
    }

    /// Removes the tokens of a finished job.
    pub(crate) fn forget(&self, job: JobId) {
        let mut inner = self.inner();
        inner.shown.remove(&job);
        inner.admitted.remove(&job);
    }

    pub(crate) fn admits_to_job(&self, job: JobId, shown: &str) -> bool {
        self.inner().admits_to_job(job, shown)
    }

    pub(crate) fn admits_to_file(
        &self,
        file: IntermediateId,
        right: FileRight,
        shown: &str,
    ) -> Option<FileGrant> {
        let inner = self.inner();
        let grant = FileGrant::claimed(file.0, right, shown, inner.server_seconds())?;
        // A grant belongs to a user and not to a node: it is valid until its expiry.
        let mut keys = inner.keys.iter();
        keys.any(|known| known.key.has_signed(&DataRight::File(grant), shown)).then_some(grant)
    }

    pub(crate) fn admits_to_stored(&self, shown: &str) -> Option<StoredGrant> {
        self.inner().admits_to_stored(shown)
    }

    pub(crate) fn admits_copy(&self, shown: &str) -> Option<IntermediateId> {
        let (file, to_node) = DataRight::claimed_copy(shown).filter(|(_, to)| *to == self.node.0)?;
        let right = DataRight::Copy { file, to_node };
        self.inner().good_keys().any(|key| key.has_signed(&right, shown)).then_some(IntermediateId(file))
    }

    /// Follows key changes until the node ends.
    pub(crate) fn follow(&self) {
        while let Some(keys) = self.link.next_data_keys() {
            self.inner().learn(&keys);
            // The answer of the server includes keys that were announced meanwhile.
            while !self.ask() && !self.link.is_over() {
                std::thread::sleep(RENEW_AGAIN_AFTER);
            }
        }
    }

    /// Asks the server for tokens of the newest key. Returns false if it does not respond.
    fn ask(&self) -> bool {
        let tokens = |(job, tokens): (&JobId, &Vec<Token>)| {
            let token = SecretText(tokens.first()?.text().to_string());
            Some(JobToken { job: *job, token })
        };
        let tokens = self.inner().shown.iter().filter_map(tokens).collect();
        match self.link.renew_tokens(tokens) {
            Ok(TokensAnswer { keys, tokens }) => {
                let mut inner = self.inner();
                inner.learn(&keys);
                tokens.iter().for_each(|token| inner.add(token));
                inner.let_earlier_end(&keys);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "cannot ask for new tokens of jobs");
                false
            }
        }
    }

    /// Does the same as [`Self::ask`], for one of many concurrent callers.
    fn ask_once(&self, since: Instant) {
        let mut asked = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_none_or(|asked| asked < since && asked.elapsed() >= RENEW_EVERY) {
            let began = Instant::now();
            self.ask();
            *asked = Some(began);
        }
    }
}

/// The tokens that requests of this node present.
pub(crate) struct ShownTokens(pub Arc<DataAccess>);

impl JobTokens for ShownTokens {
    fn tokens(&self, job: JobId) -> Vec<Token> {
        self.0.inner().shown.get(&job).cloned().unwrap_or_default()
    }

    fn renew(&self) {
        self.0.ask_once(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::{EARLIER_GRACE, Inner, WITHDRAWN_GRACE};
    use api::data_access::{DataKeys, EarlierKey};
    use ids::JobId;
    use std::time::Instant;
    use trust::{DataRight, DataSigner};

    fn told(current: &DataSigner, earlier: &[(&DataSigner, bool)]) -> DataKeys {
        let earlier = earlier.iter().map(|(signer, is_withdrawn)| EarlierKey {
            key: signer.key().text(),
            is_withdrawn: *is_withdrawn,
        });
        DataKeys { current: current.key().text(), earlier: earlier.collect(), now_seconds: 100 }
    }

    #[test]
    fn old_keys_end_when_newest_tokens_arrive() {
        let signers: Vec<DataSigner> = (0..3).map(|_| DataSigner::generate().unwrap()).collect();
        let [first, second, third] = &signers[..] else { unreachable!("three were made") };
        let token = |signer: &DataSigner| signer.sign(&DataRight::Job(7));
        let mut inner = Inner::new(&told(first, &[]));
        assert!(
            inner.admits_to_job(JobId(7), &token(first)) && !inner.admits_to_job(JobId(8), &token(first))
        );
        assert!(!inner.admits_to_job(JobId(7), &token(second)));
        // Another server began: both keys are valid, and the earlier one expires ten minutes after new tokens arrive.
        let restarted = told(second, &[(first, false)]);
        inner.learn(&restarted);
        assert!(inner.keys[1].ends.is_none());
        inner.let_earlier_end(&restarted);
        let left = inner.keys[1].ends.unwrap() - Instant::now();
        assert!(left > WITHDRAWN_GRACE && left <= EARLIER_GRACE, "{left:?}");
        // A token was revoked: two seconds, also for the key with more time.
        let revoked = told(third, &[(second, true), (first, true)]);
        inner.learn(&revoked);
        assert!(inner.admits_to_job(JobId(7), &token(first)) && inner.admits_to_job(JobId(7), &token(third)));
        inner.let_earlier_end(&revoked);
        assert!(inner.keys[1..].iter().all(|known| known.ends.unwrap() - Instant::now() <= WITHDRAWN_GRACE));
        // A repeated announcement does not restart the time.
        let ends = inner.keys[1].ends;
        inner.learn(&revoked);
        inner.let_earlier_end(&revoked);
        assert_eq!(inner.keys[1].ends, ends);
        inner.keys[1].ends = Some(Instant::now());
        assert!(!inner.admits_to_job(JobId(7), &token(second)), "its time is over");
        assert!(inner.admits_to_job(JobId(7), &token(third)));
    }
}
