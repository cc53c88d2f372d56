//! Questions to the tables of a server or of a state directory. All SQL of tests stands here, except where SQL is what is tested.
//!
//! ```text
//! cluster.attempts().of_job(1).in_stage(Stage::Map).again().count()      a question: a table, conditions, an answer
//! cluster.events(Event::DataLost).wait_for_some();
//! cluster.all_runs_lie_on_two_nodes()                                    more than one table
//! ```

mod stored;
mod words;

pub use stored::StoredQuestions;
pub use words::{Event, Stage, State};

use crate::{Cluster, Finished, Sandbox, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

/// Runs and chunks say their node above these bits.
const PER_NODE: i64 = 1 << 40;

/// A question about the rows of a table.
pub struct Question<'a> {
    asked: &'a dyn Answers,
    table: &'static str,
    /// Expression for the node of a row.
    node: String,
    conditions: Vec<String>,
}

/// Conditions: each leaves only some rows.
impl Question<'_> {
    fn and(mut self, condition: impl Display) -> Self {
        self.conditions.push(condition.to_string());
        self
    }

    pub fn of_job(self, job: i64) -> Self {
        self.and(format!("job = {job}"))
    }

    pub fn of_last_job(self) -> Self {
        self.and("job = (select max(job) from jobs)")
    }

    pub fn of_jobs_after(self, job: i64) -> Self {
        self.and(format!("job > {job}"))
    }

    pub fn in_stage(self, stage: Stage) -> Self {
        self.and(format!("(job, stage) in (select job, stage from stages where name = '{}')", stage.name()))
    }

    pub fn of_task(self, task: i64) -> Self {
        self.and(format!("task = {task}"))
    }

    pub fn is(self, state: State) -> Self {
        self.and(format!("state = '{}'", state.word()))
    }

    pub fn is_not(self, state: State) -> Self {
        self.and(format!("state <> '{}'", state.word()))
    }

    /// The first attempt of each task, or what came of it.
    pub fn first(self) -> Self {
        self.and("attempt = 0")
    }

    /// Attempts after the first of a task, or what came of them.
    pub fn again(self) -> Self {
        self.and("attempt > 0")
    }

    /// Attempts that count.
    pub fn winning(self) -> Self {
        self.and("(job, stage, task, attempt) in (select job, stage, task, winner from tasks)")
    }

    /// Tasks of which another attempt than the first counts.
    pub fn won_by_copies(self) -> Self {
        self.and("winner > 0")
    }

    pub fn ended(self) -> Self {
        self.and("ended_ns is not null")
    }

    pub fn not_ended(self) -> Self {
        self.and("ended_ns is null")
    }

    /// Jobs that run, or whose directories have not been removed yet.
    pub fn not_cleaned(self) -> Self {
        self.and("(ended_ns is null or cleaned_ns is null)")
    }

    /// On the node that was started as this one, counting from 0.
    pub fn on_node(self, number: usize) -> Self {
        let condition = format!("{} in (select node from nodes where name = 'node-{number}')", self.node);
        self.and(condition)
    }

    pub fn not_on_node(self, number: usize) -> Self {
        let condition = format!("{} in (select node from nodes where name <> 'node-{number}')", self.node);
        self.and(condition)
    }

    /// On nodes where no attempt runs.
    pub fn on_idle_nodes(self) -> Self {
        let condition = format!("{} not in (select node from attempts where state = 'running')", self.node);
        self.and(condition)
    }

    /// On nodes that have made no run.
    pub fn on_nodes_without_runs(self) -> Self {
        let condition = format!("{} not in (select run / {PER_NODE} from runs)", self.node);
        self.and(condition)
    }

    /// Nodes that were heard of for longer than this after they joined.
    pub fn heard_of_for(self, least: Duration) -> Self {
        self.and(format!("last_seen_ns - registered_ns > {}", least.as_nanos()))
    }

    pub fn named(self, name: &str) -> Self {
        self.and(format!("name = '{name}'"))
    }

    /// Rows whose name fits a pattern, with `%` for anything.
    pub fn with_name_like(self, pattern: &str) -> Self {
        self.and(format!("name like '{pattern}'"))
    }

    /// Jobs whose output is this.
    pub fn with_output(self, output: &str) -> Self {
        self.and(format!("output = '{output}'"))
    }

    /// Jobs of a user.
    pub fn of_user(self, user: &str) -> Self {
        self.and(format!("user_name = '{user}'"))
    }

    /// Jobs of one task that wait outside of the scheduler.
    pub fn waiting_outside(self) -> Self {
        self.and("waits = 1")
    }

    pub fn not_waiting_outside(self) -> Self {
        self.and("waits is null")
    }

    /// Jobs whose I-files are in this state: `kept`, `removing` or `removed`.
    pub fn with_ifiles(self, state: &str) -> Self {
        self.and(format!("ifiles = '{state}'"))
    }

    /// Rows whose text has these words, with `%` for anything between them: events by their detail, jobs by their error.
    pub fn saying(self, words: &str) -> Self {
        let column = if self.table == "jobs" { "error" } else { "detail" };
        self.and(format!("{column} like '%{words}%'"))
    }
}

/// Answers.
impl Question<'_> {
    fn select(&self, columns: &str) -> String {
        let conditions = match self.conditions.is_empty() {
            true => String::new(),
            false => format!(" where {}", self.conditions.join(" and ")),
        };
        format!("select {columns} from {}{conditions}", self.table)
    }

    #[track_caller]
    fn numbers(&self, columns: &str) -> Vec<i64> {
        numbers(self.asked, &self.select(columns))
    }

    #[track_caller]
    fn texts(&self, column: &str, order: &str) -> Vec<String> {
        texts(self.asked, &format!("{} order by {order}", self.select(column)))
    }

    /// Returns how many rows there are.
    #[track_caller]
    pub fn count(&self) -> i64 {
        self.numbers("count(*)")[0]
    }

    /// Returns whether there is a row.
    #[track_caller]
    pub fn any(&self) -> bool {
        self.count() > 0
    }

    /// Waits until there is a row.
    #[track_caller]
    pub fn wait_for_some(&self) {
        self.wait_until("there are some", |count| count > 0);
    }

    /// Waits until there are so many rows.
    #[track_caller]
    pub fn wait_for(&self, count: i64) {
        self.wait_until(&format!("there are {count}"), |found| found == count);
    }

    /// Waits until the number of rows is right; `what` says how many there shall be.
    #[track_caller]
    pub fn wait_until(&self, what: &str, is_right: impl Fn(i64) -> bool) {
        let statement = self.select("count(*)");
        wait_until(&format!("{what}: {statement}"), || is_right(self.count()));
    }

    /// Returns the tasks of attempts, each once.
    #[track_caller]
    pub fn tasks(&self) -> BTreeSet<i64> {
        self.numbers("distinct task").into_iter().collect()
    }

    /// Returns the map tasks of sources, each once.
    #[track_caller]
    pub fn map_tasks(&self) -> BTreeSet<i64> {
        self.numbers("distinct map_task").into_iter().collect()
    }

    /// Returns the I-files of sources, each once.
    #[track_caller]
    pub fn ifiles(&self) -> BTreeSet<i64> {
        self.numbers("distinct ifile").into_iter().collect()
    }

    /// Returns the jobs of rows, each once.
    #[track_caller]
    pub fn jobs(&self) -> BTreeSet<i64> {
        self.numbers("distinct job").into_iter().collect()
    }

    /// Returns the numbers of attempts within their tasks.
    #[track_caller]
    pub fn attempts(&self) -> Vec<i64> {
        self.numbers("attempt")
    }

    /// Returns the number of nodes of rows.
    #[track_caller]
    pub fn count_nodes(&self) -> i64 {
        self.numbers("count(distinct node)")[0]
    }

    /// Returns the node with the most of these rows, by its number among all that were started.
    #[track_caller]
    pub fn busiest_node(&self) -> usize {
        let rows = self.select(&format!("{} as node", self.node));
        let names = format!(
            "select n.name from ({rows}) r join nodes n on n.node = r.node group by n.name order by count(*) desc, n.name limit 1"
        );
        node_of(self.asked, &names)
    }

    /// Returns the states of jobs in the order in which they were submitted, or of nodes in that in which they joined.
    #[track_caller]
    pub fn states(&self) -> Vec<String> {
        self.texts("state", if self.table == "nodes" { "node" } else { "job" })
    }

    /// Returns the errors of jobs.
    #[track_caller]
    pub fn errors(&self) -> Vec<String> {
        self.texts("coalesce(error, '')", "job")
    }

    /// Returns the states of the I-files of jobs: `kept`, `removing` or `removed`.
    #[track_caller]
    pub fn ifile_states(&self) -> Vec<String> {
        self.texts("ifiles", "job")
    }

    /// Returns the exit codes of jobs.
    #[track_caller]
    pub fn exit_codes(&self) -> Vec<i64> {
        self.numbers("exit_code")
    }

    /// Returns the names of stages in their order.
    #[track_caller]
    pub fn stage_names(&self) -> Vec<String> {
        self.texts("name", "stage")
    }

    /// Returns the details of events in their order.
    #[track_caller]
    pub fn details(&self) -> Vec<String> {
        self.texts("coalesce(detail, '')", "event")
    }

    /// Returns the failures of attempts, as JSON.
    #[track_caller]
    pub fn failures(&self) -> Vec<String> {
        self.texts("failure", "task")
    }

    /// Returns the bytes of parts.
    #[track_caller]
    pub fn bytes(&self) -> Vec<i64> {
        self.numbers("bytes")
    }
}

/// Whatever answers a select statement: a server, or a state directory.
pub trait Answers {
    /// Returns the rows that a statement gives, as `sailfish state --json` prints them.
    #[track_caller]
    fn rows(&self, statement: &str) -> Vec<Value>;
}

impl<T: Answers> Questions for T {}

/// The questions of tests.
pub trait Questions: Answers + Sized {
    fn jobs(&self) -> Question<'_> {
        about(self, "jobs", "null")
    }

    fn stages(&self) -> Question<'_> {
        about(self, "stages", "null")
    }

    fn tasks(&self) -> Question<'_> {
        about(self, "tasks", "null")
    }

    fn attempts(&self) -> Question<'_> {
        about(self, "attempts", "node")
    }

    fn events(&self, kind: Event) -> Question<'_> {
        about(self, "events", "null").and(format!("kind = '{}'", kind.kind()))
    }

    /// Records that map attempts put into chunks; a row lies on the node of its chunk.
    fn sources(&self) -> Question<'_> {
        about(self, "source_sums", &format!("chunk / {PER_NODE}"))
    }

    /// Runs; a row lies on the node that made the run.
    fn runs(&self) -> Question<'_> {
        about(self, "runs", &format!("run / {PER_NODE}"))
    }

    /// Second copies of runs; a row lies on the node of the copy.
    fn replicas(&self) -> Question<'_> {
        about(self, "run_replicas", "node")
    }

    /// The same rows, each on the node that made the run.
    fn originals(&self) -> Question<'_> {
        about(self, "run_replicas", &format!("run / {PER_NODE}"))
    }

    fn parts(&self) -> Question<'_> {
        about(self, "parts", "null")
    }

    /// Second copies of parts of stages that other stages read.
    fn part_replicas(&self) -> Question<'_> {
        about(self, "part_replicas", "node")
    }

    fn proofs(&self) -> Question<'_> {
        about(self, "proofs", "null")
    }

    fn nodes(&self) -> Question<'_> {
        about(self, "nodes", "node")
    }

    /// Intermediate files of users; a row lies on the node where the file is read first.
    fn intermediate_files(&self) -> Question<'_> {
        about(self, "intermediate_files", "node")
    }

    /// Intermediate files with a second copy on another node.
    fn replicated_intermediate_files(&self) -> Question<'_> {
        self.intermediate_files().and("file in (select file from intermediate_file_replicas)")
    }

    /// Proofs that found a difference.
    fn failed_proofs(&self) -> Question<'_> {
        self.proofs().and("agrees = 0")
    }

    /// Runs in whose place a replica is read.
    fn replaced_runs(&self) -> Question<'_> {
        self.runs().and("run in (select run from run_replicas where state = 'standing')")
    }

    /// Attempts that began when their job was over.
    fn late_attempts(&self) -> Question<'_> {
        self.attempts().and("assigned_ns > (select ended_ns from jobs where jobs.job = attempts.job)")
    }

    /// Attempts whose times are in no order, or not within those of their job.
    fn attempts_at_odd_times(&self) -> Question<'_> {
        self.attempts().and(
            "(started_ns < assigned_ns or ended_ns < started_ns or opened_ns not between started_ns and ended_ns \
             or ended_ns > (select ended_ns from jobs where jobs.job = attempts.job))",
        )
    }

    /// Sources on the node of the map attempt that appended them.
    fn sources_at_home(&self) -> Question<'_> {
        self.sources().and(format!(
            "exists (select 1 from attempts a where {OF_SOURCE} and a.node = source_sums.chunk / {PER_NODE})"
        ))
    }

    /// Sources in another rack than that of the map attempt that appended them.
    fn sources_in_other_racks(&self) -> Question<'_> {
        self.sources().and(format!(
            "exists (select 1 from attempts a join nodes m on m.node = a.node \
             join nodes c on c.node = source_sums.chunk / {PER_NODE} where {OF_SOURCE} and m.rack <> c.rack)"
        ))
    }

    /// Returns the number of the newest job; 0 where there is none.
    #[track_caller]
    fn last_job(&self) -> i64 {
        numbers(self, "select coalesce(max(job), 0) from jobs")[0]
    }

    /// Returns whether there are runs, and all lie on two nodes.
    #[track_caller]
    fn all_runs_lie_on_two_nodes(&self) -> bool {
        holds(
            self,
            "select count(*) > 0 and count(*) = (select count(*) from runs where replaced_by is null) \
             from run_replicas where state = 'complete'",
        )
    }

    /// Returns whether replicas stand in for runs of a lost node, and no run lies on one node only.
    #[track_caller]
    fn all_runs_lie_on_two_nodes_again(&self) -> bool {
        holds(
            self,
            "select (select count(*) from run_replicas where state = 'standing') > 0 \
             and not exists (select 1 from runs r where r.replaced_by is null \
             and not exists (select 1 from run_replicas p where p.job = r.job and p.run = r.run and p.state = 'complete'))",
        )
    }

    /// Returns whether each part of a job that has bytes lies on two nodes.
    #[track_caller]
    fn all_parts_lie_on_two_nodes(&self, job: i64) -> bool {
        holds(
            self,
            &format!(
                "select (select count(*) from part_replicas) = (select count(*) from parts where job = {job} and bytes > 0)"
            ),
        )
    }

    /// Returns the number by which the store knows a node.
    #[track_caller]
    fn node_id(&self, number: usize) -> i64 {
        numbers(self, &format!("select max(node) from nodes where name = 'node-{number}'"))[0]
    }

    /// Returns a node that made parts of a job which count, one where nothing runs if there is such a node.
    #[track_caller]
    fn node_with_parts(&self, job: i64) -> usize {
        let winners = self.attempts().of_job(job).in_stage(Stage::Reduce).winning().select("node");
        let name = format!(
            "select name from nodes where node in ({winners}) \
             order by node in (select node from attempts where state = 'running'), name limit 1"
        );
        node_of(self, &name)
    }

    /// Returns the node of the original and the node of the replica of a run that lies on two.
    #[track_caller]
    fn nodes_of_a_replicated_run(&self) -> (i64, usize, usize) {
        let run = self
            .replicas()
            .is(State::Complete)
            .and("run in (select run from runs where replaced_by is null)")
            .select("run");
        let run = numbers(self, &format!("{run} order by run limit 1"))[0];
        let name = |node: String| node_of(self, &format!("select name from nodes where node = ({node})"));
        let copy = format!("select node from run_replicas where run = {run} and state = 'complete' limit 1");
        (run, name(format!("select {run} / {PER_NODE}")), name(copy))
    }

    /// Returns the I-file in which each partition of the first plan lies, in order. A partition by hash lies in one.
    #[track_caller]
    fn ifiles_of_partitions(&self) -> Vec<i64> {
        let statement =
            "select cast(trim(ifiles, '[]') as integer) from plan_tasks where version = 1 order by part";
        numbers(self, statement)
    }

    /// Returns the version of the last plan of a job.
    #[track_caller]
    fn plan_version(&self, job: i64) -> i64 {
        numbers(self, &format!("select max(version) from plans where job = {job}"))[0]
    }

    /// Returns the number of tasks that a stage was cut into.
    #[track_caller]
    fn task_count(&self, job: i64, stage: Stage) -> i64 {
        let statement =
            format!("select task_count from stages where job = {job} and name = '{}'", stage.name());
        numbers(self, &statement)[0]
    }

    /// Returns the map tasks with data in runs that lie on a disk of the only node with runs.
    #[track_caller]
    fn map_tasks_on_disk(&self, disk: i64) -> BTreeSet<i64> {
        let statement = format!(
            "select distinct s.map_task from source_sums s join run_chunks c on c.job = s.job and c.chunk = s.chunk \
             join runs r on r.job = c.job and r.run = c.run \
             where r.disk = {disk} and r.in_memory = 0 and r.replaced_by is null"
        );
        numbers(self, &statement).into_iter().collect()
    }

    /// Returns the tasks of a job of which several attempts count.
    #[track_caller]
    fn tasks_with_two_winners(&self, job: i64) -> i64 {
        let statement = format!(
            "select count(*) from (select 1 from attempts where job = {job} and state = 'succeeded' \
             group by stage, task having count(*) > 1) as doubles"
        );
        numbers(self, &statement)[0]
    }

    /// Returns whether each task of a stage is over or runs twice at this moment.
    #[track_caller]
    fn all_open_tasks_run_twice(&self, job: i64, stage: Stage) -> bool {
        let statement = format!(
            "select count(*) > 0 and min(t.winner is not null or (select count(*) from attempts a where \
             a.job = t.job and a.stage = t.stage and a.task = t.task and a.state = 'running') = 2) \
             from tasks t join stages s on s.job = t.job and s.stage = t.stage where t.job = {job} and s.name = '{}'",
            stage.name()
        );
        holds(self, &statement)
    }

    /// Fails the test where a task of a job has not one winner, or data of another attempt is left.
    #[track_caller]
    fn assert_one_winner_each(&self, job: i64) {
        let nothing = [
            format!(
                "select count(*) from (select 1 from attempts where job = {job} and state = 'succeeded' \
                 group by stage, task having count(*) <> 1) as tasks"
            ),
            format!(
                "select count(*) from tasks t left join attempts a on a.job = t.job and a.stage = t.stage and \
                 a.task = t.task and a.attempt = t.winner where t.job = {job} and coalesce(a.state, '') <> 'succeeded'"
            ),
            format!(
                "select count(*) from source_sums s join tasks t on t.job = s.job and t.task = s.map_task \
                 join stages g on g.job = t.job and g.stage = t.stage and g.name = 'map' \
                 where s.job = {job} and s.attempt <> t.winner"
            ),
            format!(
                "select count(*) from parts p join tasks t on t.job = p.job and t.stage = p.stage and t.task = p.task \
                 where p.job = {job} and p.attempt <> t.winner"
            ),
        ];
        for statement in nothing {
            assert_eq!(numbers(self, &statement), [0], "{statement}");
        }
    }

    /// Returns the records, bytes and sums of a proof, committed and merged, for each I-file.
    #[track_caller]
    fn proof_rows(&self, job: i64) -> Vec<Value> {
        self.rows(&format!(
            "select ifile, committed_records, committed_bytes, hex(committed_hash_sum) as committed, \
             merged_records, merged_bytes, hex(merged_hash_sum) as merged, agrees from proofs where job = {job} order by ifile"
        ))
    }

    /// Returns the time between the last message of a node and the assignment of the last attempt of a job.
    #[track_caller]
    fn time_to_another_node(&self, number: usize, job: i64) -> Duration {
        let statement = format!(
            "select max(assigned_ns) - (select last_seen_ns from nodes where name = 'node-{number}') \
             from attempts where job = {job}"
        );
        let nanoseconds = numbers(self, &statement)[0];
        Duration::from_nanos(nanoseconds.try_into().expect("the assignment comes after the message"))
    }

    /// Returns the pairs of jobs of which the newer began first, but for one job that may.
    #[track_caller]
    fn overtaken_jobs(&self, urgent: i64) -> i64 {
        let statement = format!(
            "select count(*) from attempts a join attempts b on a.job < b.job \
             where a.attempt = 0 and b.attempt = 0 and a.assigned_ns > b.assigned_ns and b.job <> {urgent}"
        );
        numbers(self, &statement)[0]
    }

    /// Returns the number and incarnation of each node, in the order in which they joined.
    #[track_caller]
    fn incarnations(&self) -> Vec<Value> {
        self.rows("select node, incarnation from nodes order by node")
    }

    /// Returns the names of the nodes that keep I-files of a job.
    #[track_caller]
    fn keeping_nodes(&self, job: i64) -> Vec<String> {
        texts(self, &format!("select node_name from kept_dirs where job = {job} and bytes > 0"))
    }

    /// Returns how often a route was called, refused or not.
    #[track_caller]
    fn audited(&self, action: &str) -> i64 {
        numbers(self, &format!("select count(*) from audit where action = '{action}'"))[0]
    }
}

/// Joins a source with the map attempt that appended it.
const OF_SOURCE: &str = "a.job = source_sums.job and a.task = source_sums.map_task and a.attempt = source_sums.attempt \
    and (a.job, a.stage) in (select job, stage from stages where name = 'map')";

/// Counts the attempts that have ended, of all jobs.
pub(crate) const ENDED_ATTEMPTS: &str = "select count(*) from attempts where ended_ns is not null";

/// Statements that must give no rows when all jobs are over, and what a row would be. A job whose error is `never_taken_in` was known to
/// no server.
pub(crate) fn broken_history(never_taken_in: &str) -> Vec<(&'static str, String)> {
    let of_jobs = "select a.job, stage, task, attempt from attempts a join jobs j on a.job = j.job where";
    vec![
        ("jobs that are not over", "select job, state from jobs where ended_ns is null".to_string()),
        ("attempts of jobs that were over", format!("{of_jobs} a.assigned_ns > j.ended_ns")),
        (
            "jobs that succeeded without proof",
            "select p.job, p.ifile from proofs p join jobs j on p.job = j.job \
             where p.agrees = 0 and j.state = 'succeeded'"
                .to_string(),
        ),
        (
            "attempts that still run",
            "select job, stage, task, attempt from attempts where ended_ns is null".to_string(),
        ),
        ("attempts of jobs that no server had", format!("{of_jobs} j.error = '{never_taken_in}'")),
    ]
}

/// Counts the jobs with no error or another one.
pub(crate) fn jobs_without_error(error: &str) -> String {
    format!("select count(*) from jobs where coalesce(error, '') <> '{error}'")
}

/// Selects numbers and states of jobs and stages by the name that their client gave, but for those with an error.
pub(crate) fn jobs_by_name(name: &str, error: &str) -> String {
    format!(
        "select job, state from jobs where (name = '{name}' or name like '{name}.%' or output like '%/{name}') \
         and coalesce(error, '') <> '{error}' order by job"
    )
}

impl Answers for Sandbox {
    #[track_caller]
    fn rows(&self, statement: &str) -> Vec<Value> {
        rows_of(self.look(&["state", "--json", statement]))
    }
}

impl Answers for Cluster {
    #[track_caller]
    fn rows(&self, statement: &str) -> Vec<Value> {
        rows_of(self.run(&["state", "--json", statement]))
    }
}

/// Returns the rows that `sailfish state --json` has printed.
#[track_caller]
pub fn rows_of(asked: Finished) -> Vec<Value> {
    let asked = asked.expect_success();
    asked.json().as_array().unwrap_or_else(|| panic!("not a list:\n{}", asked.story())).clone()
}

fn about<'a>(asked: &'a dyn Answers, table: &'static str, node: &str) -> Question<'a> {
    Question { asked, table, node: node.to_string(), conditions: Vec::new() }
}

/// The first column of each row.
fn column(asked: &dyn Answers, statement: &str) -> Vec<Value> {
    let first = |row: &Value| row.as_object()?.values().next().cloned();
    let rows = asked.rows(statement);
    rows.iter().map(|row| first(row).unwrap_or_else(|| panic!("{statement} gives {row}"))).collect()
}

#[track_caller]
fn numbers(asked: &dyn Answers, statement: &str) -> Vec<i64> {
    let number = |value: Value| value.as_i64().unwrap_or_else(|| panic!("{statement} gives {value}"));
    column(asked, statement).into_iter().map(number).collect()
}

#[track_caller]
fn texts(asked: &dyn Answers, statement: &str) -> Vec<String> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => panic!("{statement} gives {other}"),
    };
    column(asked, statement).into_iter().map(text).collect()
}

/// The answer to a statement that gives a condition: a number from SQLite, a truth value from PostgreSQL.
#[track_caller]
fn holds(asked: &dyn Answers, statement: &str) -> bool {
    match &column(asked, statement)[..] {
        [Value::Bool(holds)] => *holds,
        [Value::Number(number)] => number.as_i64() == Some(1),
        other => panic!("{statement} gives {other:?}"),
    }
}

/// The place, among all nodes that were started, of the node whose name a statement gives.
#[track_caller]
fn node_of(asked: &dyn Answers, statement: &str) -> usize {
    let names = texts(asked, statement);
    let name = names.first().unwrap_or_else(|| panic!("no such node: {statement}"));
    name.trim_start_matches("node-").parse().expect("nodes of tests are numbered")
}
