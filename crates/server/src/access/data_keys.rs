//! Signs the rights that data ports accept. Each server has its own signing key, which is stored nowhere else. The
//! store has the public keys, so that the next server recognizes earlier signatures. When a join token is revoked, the
//! server makes a new key, and rights of nodes that the old key signed expire within seconds.

use crate::ServerError;
use crate::clock::{self, now_ns};
use crate::event_loop::{EventLoop, Reply};
use api::control::JobBrief;
use api::data_access::{
    BriefQuestion, DataKeys, EarlierKey, FileCopy, JobToken, SecretText, TokensAnswer, TokensQuestion,
};
use api::intermediate::CopyGrant;
use control::ControlError;
use ids::{JobId, NodeId};
use metastore::{Change, DATA_KEYS_MAX, DataKeyRow, StoreError};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};
use trust::{DataKey, DataRight, DataSigner, TrustError};

/// The signer for the event loop and for the control port.
pub(crate) struct Signing {
    keys: RwLock<Keys>,
}

struct Keys {
    signer: Arc<DataSigner>,
    /// Earlier keys, newest first.
    earlier: VecDeque<Earlier>,
}

#[derive(Clone, Copy)]
struct Earlier {
    key: DataKey,
    is_withdrawn: bool,
}

impl Signing {
    pub fn begin() -> Result<Self, TrustError> {
        let signer = Arc::new(DataSigner::generate()?);
        Ok(Self { keys: RwLock::new(Keys { signer, earlier: VecDeque::new() }) })
    }

    fn signer(&self) -> Arc<DataSigner> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner).signer)
    }

    pub fn sign(&self, right: &DataRight) -> String {
        self.signer().sign(right)
    }

    /// Returns whether a server signed this text recently.
    fn has_signed(&self, right: &DataRight, text: &str) -> bool {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let mut all =
            std::iter::once(keys.signer.key()).chain(keys.earlier.iter().map(|earlier| earlier.key));
        all.any(|key| key.has_signed(right, text))
    }

    /// Adds earlier keys, newest first.
    fn know(&self, earlier: impl Iterator<Item = Earlier>) {
        self.keys.write().unwrap_or_else(PoisonError::into_inner).earlier.extend(earlier);
    }

    /// Makes `signer` the signing key, and withdraws the node rights of all earlier keys.
    fn withdraw(&self, signer: DataSigner) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut keys.signer, Arc::new(signer)).key();
        keys.earlier.push_front(Earlier { key: before, is_withdrawn: false });
        keys.earlier.truncate(DATA_KEYS_MAX as usize);
        keys.earlier.iter_mut().for_each(|earlier| earlier.is_withdrawn = true);
    }

    /// Returns the keys as they are sent to nodes.
    pub fn told(&self) -> DataKeys {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let told =
            |earlier: &Earlier| EarlierKey { key: earlier.key.text(), is_withdrawn: earlier.is_withdrawn };
        DataKeys {
            current: keys.signer.key().text(),
            earlier: keys.earlier.iter().map(told).collect(),
            now_seconds: now_ns() / 1_000_000_000,
        }
    }

    /// Returns the right of a node to send its copy of a file to another node.
    pub fn copy_grant(&self, copy: FileCopy) -> CopyGrant {
        let right = DataRight::Copy { file: copy.file.0, to_node: copy.to.0 };
        CopyGrant { copy, grant: SecretText(self.sign(&right)) }
    }

    fn job_token(&self, job: JobId) -> JobToken {
        JobToken { job, token: SecretText(self.sign(&DataRight::Job(job.0))) }
    }
}

/// The validity of the keys that servers made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierKeys {
    Stay,
    Withdrawn,
}

pub(crate) fn key_made(signer: &DataSigner, earlier: EarlierKeys) -> Change {
    let withdraws_earlier = earlier == EarlierKeys::Withdrawn;
    Change::DataKeyMade { public_key: signer.key().text(), withdraws_earlier, now_ns: now_ns() }
}

/// Parses a row; None if a server of another version wrote it.
fn earlier(row: &DataKeyRow) -> Option<Earlier> {
    Some(Earlier { key: DataKey::parse(&row.public_key)?, is_withdrawn: row.withdrawn_ns.is_some() })
}

impl EventLoop {
    /// Stores the key of this server before it signs anything.
    pub async fn begin_to_sign(&mut self) -> Result<(), StoreError> {
        let known = self.store.data_keys().await?;
        self.signing.know(known.iter().filter_map(earlier));
        self.store.apply(&[key_made(&self.signing.signer(), EarlierKeys::Stay)]).await
    }

    /// Removes the nodes that joined with a revoked token. Their tokens of jobs become useless. The key of the signer
    /// must be stored already.
    pub fn shut_out(&mut self, token: &str, signer: DataSigner) {
        self.signing.withdraw(signer);
        self.control.shut_out(&mut self.outbox, token);
        self.control.tell_keys(&self.signing.told());
    }

    /// Sends a node the facts of a job in which it is involved: it runs attempts of the job, or another involved node
    /// connected to it.
    pub fn brief(&mut self, node: NodeId, job: JobId, question: &BriefQuestion, reply: Reply<JobBrief>) {
        drop(reply.send(self.brief_of(node, job, question.token.as_ref())));
    }

    fn brief_of(
        &mut self,
        node: NodeId,
        job: JobId,
        shown: Option<&SecretText>,
    ) -> Result<JobBrief, ServerError> {
        if !self.control.has_job(job) {
            return Err(ControlError::UnknownJob { job }.into());
        }
        if !self.control.has_to_do_with(node, job) && !self.is_shown(job, shown) {
            return Err(ControlError::NotOfNode { node, job }.into());
        }
        let brief = self.control.brief(node, job)?;
        let reads = brief.spec.reads();
        let tokens = reads.iter().map(|read| self.signing.job_token(*read)).collect();
        Ok(JobBrief { token: self.signing.job_token(job).token, tokens, ..brief })
    }

    fn is_shown(&self, job: JobId, shown: Option<&SecretText>) -> bool {
        shown.is_some_and(|text| self.signing.has_signed(&DataRight::Job(job.0), &text.0))
    }

    /// Sends new tokens for those that a node has, and for the jobs of which it runs attempts.
    pub fn renew_tokens(&mut self, node: NodeId, question: &TokensQuestion, reply: Reply<TokensAnswer>) {
        if let Err(error) = self.control.hear(node, &question.incarnation, clock::now()) {
            return drop(reply.send(Err(error.into())));
        }
        let has_to_do = |token: &&JobToken| {
            self.control.has_job(token.job)
                && (self.control.has_to_do_with(node, token.job)
                    || self.is_shown(token.job, Some(&token.token)))
        };
        let jobs = question.tokens.iter().filter(has_to_do).map(|token| token.job);
        let tokens = jobs.map(|job| self.signing.job_token(job)).collect();
        drop(reply.send(Ok(TokensAnswer { keys: self.signing.told(), tokens })));
    }
}
