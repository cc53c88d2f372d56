//! `sailfish bench jobs`: the rate of one-task jobs of a server from submit to the stored end, and the latency of one
//! on an idle server. Clients pull over HTTP like nodes, and run nothing.

use crate::commands::bench::stub_steps;
use crate::exit::Failure;
use crate::options::connect::CredentialArgs;
use crate::show::terminal::print;
use anyhow::{Context, ensure};
use api::control::{
    AttemptEnd, AttemptOutcome, BATCH_JOBS_MAX, JobBatch, NodeInfo, NodeOrder, NodeOrders, NodePoll,
    PROTOCOL_VERSION,
};
use api::task::{AttemptUsage, RunTask};
use api::{Task, TaskResult};
use clap::Args;
use client::{Client, ClientError};
use ids::JobId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// Time for which a poll is delayed before another one follows.
const NEXT_POLL_AFTER: Duration = Duration::from_millis(100);
/// Interval between two batches if a rate is requested.
const OFFER_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub struct JobsBenchArgs {
    /// Server, as in http://127.0.0.1:7070; it should have no other work
    #[arg(long, value_name = "URL")]
    pub server: String,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Number of jobs
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub jobs: u64,
    /// Number of clients that pull jobs; with 0, nodes of the cluster run them
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub clients: u32,
    /// Jobs that a client holds at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub slots: u32,
    /// Jobs submitted with one request
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub batch: usize,
    /// Jobs submitted per second [default: as fast as the server accepts them]
    #[arg(long, value_name = "N", conflicts_with = "latency")]
    pub rate: Option<u64>,
    /// Submit the jobs and leave them waiting
    #[arg(long, conflicts_with = "latency")]
    pub only_submit: bool,
    /// Request one byte more of memory with each job, so that each job has its own queue
    #[arg(long, requires = "only_submit")]
    pub unlike: bool,
    /// Submit each job after the previous one ends, and print the times from submit to start
    #[arg(long)]
    pub latency: bool,
    /// Submit one workflow in place of the jobs: each is a step with a file of 100 bytes
    #[arg(long, conflicts_with_all = ["latency", "only_submit", "rate", "words"])]
    pub steps: bool,
    /// Program that nodes of the cluster run [default: a job does nothing]
    #[arg(last = true)]
    pub words: Vec<String>,
}

/// Runs the benchmark and prints `name value unit` lines.
pub fn run(args: &JobsBenchArgs) -> Result<(), Failure> {
    measure(args).map_err(Failure::refused)
}

fn measure(args: &JobsBenchArgs) -> anyhow::Result<()> {
    ensure!((1..=BATCH_JOBS_MAX).contains(&args.batch), "--batch: give 1 to {BATCH_JOBS_MAX}");
    ensure!(args.jobs > 0, "--jobs: give at least 1");
    ensure!(args.rate != Some(0), "--rate: give at least 1");
    ensure!(args.clients == 0 || args.words.is_empty(), "a program runs on nodes: add --clients 0");
    ensure!(args.clients > 0 || !args.steps, "--steps: clients report them, so give --clients at least 1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the clients")?.block_on(async {
        let began = Instant::now();
        if args.only_submit {
            submit(args).await?;
            return print_rate("submitted", args.jobs, began);
        }
        if args.clients == 0 {
            return by_nodes(args).await;
        }
        let done = Arc::new(AtomicU64::new(0));
        let (started, starts) = mpsc::channel(1024);
        let mut pulling = JoinSet::new();
        for number in 0..args.clients {
            let puller = Puller::join(args, number).await?;
            pulling.spawn(puller.pull(Arc::clone(&done), args.latency.then(|| started.clone()), args.jobs));
        }
        if args.latency {
            return latency(args, starts).await;
        }
        let began = Instant::now();
        submit(args).await?;
        print_rate("submitted while pulled", args.jobs, began)?;
        while let Some(ended) = pulling.join_next().await {
            ended.context("a client panicked")??;
        }
        print_rate("finished", args.jobs, began)
    })
}

fn print_rate(what: &str, jobs: u64, began: Instant) -> anyhow::Result<()> {
    let seconds = began.elapsed().as_secs_f64();
    print(&format!("{what}: {jobs} jobs in {seconds:.2} s, {:.0} jobs/s\n", jobs as f64 / seconds))
}

fn connect(args: &JobsBenchArgs) -> anyhow::Result<Client> {
    let credentials = args.credentials.read(&args.server).map_err(Failure::into_error)?;
    Ok(Client::with(&args.server, &credentials)?)
}

fn batch(args: &JobsBenchArgs, handed_in: u64, count: u64) -> JobBatch {
    let directory = if args.words.is_empty() { "".into() } else { std::env::temp_dir() };
    let task = RunTask { words: args.words.clone(), directory, ..RunTask::default() };
    let mut tasks = vec![task; count as usize];
    if args.unlike {
        for (index, task) in tasks.iter_mut().enumerate() {
            task.memory_bytes = handed_in + index as u64 + 1;
        }
    }
    JobBatch { name: "bench".to_string(), tasks, ..JobBatch::default() }
}

/// Waits until more jobs may be submitted at the requested rate, given the number submitted since `began`. Returns the
/// number that may be submitted by now.
async fn due(rate: Option<u64>, began: Instant, handed_in: u64) -> u64 {
    let Some(rate) = rate else { return u64::MAX };
    loop {
        if handed_in > 0 {
            tokio::time::sleep(OFFER_EVERY).await;
        }
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64 + 1;
        if due > handed_in {
            return due - handed_in;
        }
    }
}

/// Submits all jobs. Returns the number of the last.
async fn submit(args: &JobsBenchArgs) -> anyhow::Result<JobId> {
    let client = connect(args)?;
    if args.steps {
        return Ok(client.submit(&stub_steps::workflow(args.jobs)?).await?.job);
    }
    let began = Instant::now();
    let (mut left, mut last) = (args.jobs, JobId(0));
    while left > 0 {
        let may = due(args.rate, began, args.jobs - left).await;
        let count = left.min(args.batch as u64).min(may);
        let submitted = client.submit_batch(&batch(args, args.jobs - left, count)).await?;
        last = JobId(submitted.first.0 + i64::from(submitted.count) - 1);
        left -= count;
    }
    Ok(last)
}

/// Runs jobs in the order of submission, so that the last few end last.
async fn by_nodes(args: &JobsBenchArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let last = submit(args).await?;
    let client = connect(args)?;
    for job in (last.0 - args.jobs.min(64) as i64 + 1)..=last.0 {
        client.wait(JobId(job)).await?;
    }
    print_rate("finished", args.jobs, began)
}

async fn latency(args: &JobsBenchArgs, mut starts: mpsc::Receiver<Instant>) -> anyhow::Result<()> {
    let client = connect(args)?;
    let mut times = Vec::new();
    for _ in 0..args.jobs {
        let began = Instant::now();
        let submitted = client.submit_batch(&batch(args, 0, 1)).await?;
        let started = starts.recv().await.context("the clients ended")?;
        times.push(started.duration_since(began));
        client.wait(submitted.first).await?;
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    print(&format!("submit to start: p50 {:.2} ms, p99 {:.2} ms\n", at(0.5), at(0.99)))
}

/// A client that pulls.
struct Puller {
    client: Client,
    node: ids::NodeId,
    poll: NodePoll,
}

impl Puller {
    async fn join(args: &JobsBenchArgs, number: u32) -> anyhow::Result<Puller> {
        let client = connect(args)?;
        let info = NodeInfo {
            protocol: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_string(),
            name: format!("bench-{}-{number}", std::process::id()),
            rack: "bench".to_string(),
            slots: args.slots,
            memory_bytes: 0,
            architecture: std::env::consts::ARCH.to_string(),
            resources: Default::default(),
            data_url: String::new(),
            sees: Vec::new(),
            left: Vec::new(),
            predecessors: Vec::new(),
        };
        let welcome = client.register(&info).await?;
        let client = client.as_node(&welcome.secret)?;
        let free_slots = (0..args.slots).collect();
        let poll = NodePoll { incarnation: welcome.incarnation, free_slots, ..NodePoll::default() };
        Ok(Puller { client, node: welcome.node, poll })
    }

    /// Sends a poll. Its task returns the number of ends in the poll, and the answer.
    fn poll_later(&self) -> JoinHandle<(u64, Result<NodeOrders, ClientError>)> {
        let (client, node, poll) = (self.client.clone(), self.node, self.poll.clone());
        tokio::spawn(async move { (poll.finished.len() as u64, client.poll(node, &poll).await) })
    }

    /// Ends every attempt as it arrives, until this many have ended.
    async fn pull(
        mut self,
        done: Arc<AtomicU64>,
        started: Option<mpsc::Sender<Instant>>,
        jobs: u64,
    ) -> anyhow::Result<()> {
        let mut polled = self.poll_later();
        while done.load(Ordering::Relaxed) < jobs {
            // Without news the server delays the answer until the next poll arrives: like nodes, the next one is sent
            // while the first waits, which confirms the ends that the first carried.
            let (ends, orders) = match tokio::time::timeout(NEXT_POLL_AFTER, &mut polled).await {
                Ok(answer) => answer.context("a poll panicked")?,
                Err(_) => {
                    self.poll.finished.clear();
                    let next = self.poll_later();
                    std::mem::replace(&mut polled, next).await.context("a poll panicked")?
                }
            };
            let orders = orders?;
            done.fetch_add(ends, Ordering::Relaxed);
            let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
            self.poll.finished.clear();
            for numbered in orders.orders {
                if numbered.number <= self.poll.received {
                    continue;
                }
                self.poll.received = numbered.number;
                let NodeOrder::Start { attempt, task, .. } = numbered.order else { continue };
                let Task::Run(task) = *task else { continue };
                if let Some(started) = &started {
                    started.send(Instant::now()).await.context("nobody measures")?;
                }
                self.poll.finished.push(AttemptEnd {
                    attempt,
                    outcome: AttemptOutcome::Succeeded(TaskResult::Run(stub_steps::result(&task))),
                    started_ns: now_ns,
                    ended_ns: now_ns,
                    usage: AttemptUsage::default(),
                });
            }
            if !self.poll.finished.is_empty() || polled.is_finished() {
                polled = self.poll_later();
            }
        }
        Ok(self.client.leave(self.node, &self.poll.incarnation).await?)
    }
}
