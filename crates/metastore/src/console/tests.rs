//! Tests of permitted and forbidden statements, on both databases.

use super::statement::{Dialect, single_statement};
use super::{QueryError, QueryLimits, query_read_only};
use crate::{CLUSTER_OWNER, Change, Metastore, Role, TokenRow};
use api::JobSpec;
use api::history::Cell;
use ids::StageKind;
use private_postgres::PrivatePostgres;
use sqlx::{ConnectOptions, Connection};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn one_statement_and_no_other() {
    let single_statement = |text| single_statement(text, Dialect::Sqlite);
    let accepted = |text: &'static str| single_statement(text).is_ok();
    assert!(accepted("select 1"));
    assert!(accepted("  -- why\n /* x */ SELECT ';', \"a;b\", 'it''s;';  -- done\n"));
    assert!(accepted("with x as (select 1) select * from x;"));
    assert!(matches!(single_statement("select 1; select 2"), Err(QueryError::MoreThanOne)));
    assert!(matches!(single_statement("select 1;;"), Err(QueryError::MoreThanOne)));
    assert!(matches!(single_statement(" -- nothing"), Err(QueryError::Empty)));
    assert!(matches!(single_statement(""), Err(QueryError::Empty)));
    for text in ["drop table jobs", "pragma query_only=0", "attach 'x' as y", "(select 1)", "é"] {
        assert!(matches!(single_statement(text), Err(QueryError::NotReadOnly { .. })), "{text}");
    }
}

async fn store() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    Metastore::open(dir.path()).await.unwrap().close().await.unwrap();
    dir
}

#[tokio::test]
async fn values_come_back_as_they_are() {
    let dir = store().await;
    let text = "select 1 as a, 2.5 as b, 'x' as c, x'00ff' as d, null as e";
    let table = query_read_only(dir.path(), text, QueryLimits::default()).await.unwrap();
    assert_eq!(table.columns, ["a", "b", "c", "d", "e"]);
    let row = [
        Cell::Integer(1),
        Cell::Real(2.5),
        Cell::Text("x".to_string()),
        Cell::Blob(api::KeyBytes(vec![0, 255])),
        Cell::Null,
    ];
    assert_eq!(table.rows, [row]);
    let empty = query_read_only(dir.path(), "select job, name from jobs", QueryLimits::default()).await;
    assert_eq!(empty.unwrap().columns, ["job", "name"]);
}

#[tokio::test]
async fn writes_are_refused_even_behind_with() {
    let dir = store().await;
    let text = "with x as (select 1) delete from sequences";
    let refused = query_read_only(dir.path(), text, QueryLimits::default()).await;
    assert!(matches!(refused, Err(QueryError::Statement { .. })), "{refused:?}");
    let wrong = query_read_only(dir.path(), "select * from nowhere", QueryLimits::default()).await;
    assert!(matches!(wrong, Err(QueryError::Statement { message }) if message.contains("nowhere")));
}

#[tokio::test]
async fn rows_and_time_are_limited() {
    const ENDLESS: &str = "with recursive n(i) as (select 1 union all select i + 1 from n) ";
    let dir = store().await;
    let limits = QueryLimits { rows_max: 3, time_max: Duration::from_secs(30), ..QueryLimits::default() };
    let table = query_read_only(dir.path(), &format!("{ENDLESS} select i from n"), limits).await.unwrap();
    assert_eq!((table.rows.len(), table.truncated), (3, true));
    let limits = QueryLimits { rows_max: 3, time_max: Duration::from_millis(50), ..QueryLimits::default() };
    let slow = query_read_only(dir.path(), &format!("{ENDLESS} select count(*) from n"), limits).await;
    assert!(matches!(slow, Err(QueryError::TooLong { .. })), "{slow:?}");
}

/// Hash of a token, which no answer may show. As text it is thirty-two letters.
const SECRET: [u8; 32] = [b'S'; 32];
/// A value in the environment of a job.
const SPEC_SECRET: &str = "hunter2";

/// Fills the store with rows that an attack could steal.
async fn fill(store: &Metastore) {
    let spec =
        JobSpec { env: vec![("PASSWORD".to_string(), SPEC_SECRET.to_string())], ..crate::suite::spec() };
    let job = store.reserve_job_id().await.unwrap();
    let token = TokenRow {
        token: "t1".to_string(),
        user: "ann".to_string(),
        hash: SECRET,
        created_ns: 2,
        expires_ns: None,
        revoked_ns: None,
    };
    store
        .apply(&[
            Change::UserAdded { name: "ann".to_string(), role: Role::Admin, now_ns: 1 },
            Change::TokenIssued { token },
            Change::JobSubmitted {
                job,
                owner: CLUSTER_OWNER.to_string(),
                spec: Arc::new(spec),
                stages: vec![StageKind::Map],
                staging: PathBuf::from("/.out"),
                disk_dirs: Vec::new(),
                user: Some("ann".to_string()),
                priority: 0,
                waits: false,
                step_of: None,
                now_ns: 2,
            },
        ])
        .await
        .unwrap();
}

/// Statements that would write, read secrets or foreign data, or block the store. Statements for one database are in
/// its list; on the other database they are errors and do nothing.
const ATTACKS: &[&str] = &[
    // Writes, alone and inside other statements.
    "delete from jobs",
    "insert into users values ('eve', 'admin', 1, null)",
    "update users set role = 'admin'",
    "drop table jobs",
    "drop schema console cascade",
    "truncate jobs",
    "create table x (a int)",
    "create temp table x as select 1",
    "alter table jobs add column x int",
    "vacuum",
    "analyze",
    "reindex",
    "checkpoint",
    "with gone as (delete from jobs returning *) select * from gone",
    "with new as (insert into users values ('eve', 'admin', 1, null) returning *) select * from new",
    "with changed as (update users set role = 'admin' returning *) select * from changed",
    "with x as (select 1) delete from jobs",
    "with x as (select 1) update users set role = 'admin'",
    "with x as (select 1) insert into roles select 'root', 'all'",
    "select * into stolen from jobs",
    "select * from jobs for update",
    "select * from jobs for share",
    "explain analyze delete from jobs",
    "explain analyze create table x as select 1",
    "explain (analyze) insert into roles values ('root', 'all')",
    "values (1); delete from jobs",
    // More than one statement.
    "select 1; delete from jobs",
    "select 1; commit; delete from jobs",
    "select 1;\n--\ndelete from jobs",
    "select ';' ; delete from jobs",
    "select 1 /* ; */ ; delete from jobs",
    "select 1 /* /* */ ; delete from jobs -- */",
    "select e'\\'; delete from jobs --'",
    "select $$ ; $$ ; delete from jobs",
    "select $a$; delete from jobs; $a$",
    "select \"a\"\"; b\"; delete from jobs",
    "/**/; delete from jobs",
    "select 1 -- \r; delete from jobs",
    // Leaving the transaction.
    "commit",
    "rollback",
    "begin",
    "set role sailfish",
    "reset role",
    "reset all",
    "set session authorization default",
    "set transaction read write",
    "select set_config('role', 'none', false)",
    "select set_config('role', 'sailfish', true), query_to_xml('select hash from public.tokens', true, true, '')",
    "select \"set_config\"('default_transaction_read_only', 'off', false)",
    "select pg_catalog.set_config('statement_timeout', '0', false)",
    "select u&\"\\0073et_config\"('role', 'none', false)",
    "select set_config /* */ ('role', 'none', false)",
    "with set_config(a) as (select 1) select set_config('role', 'none', false) from set_config",
    "select * from set_config('role', 'none', false) as (a text)",
    "select 1 as x, lower(set_config('role', 'none', false))",
    "do $$ begin delete from jobs; end $$",
    "prepare x as delete from jobs",
    "execute x",
    "declare c cursor for select 1",
    "listen x",
    "notify x",
    "discard all",
    "lock table jobs",
    "call x()",
    "copy jobs to '/tmp/stolen'",
    "copy jobs from program 'touch /tmp/owned'",
    "pragma query_only = 0",
    "pragma writable_schema = 1",
    "attach 'other.db' as other",
    "detach main",
    "select load_extension('x')",
    // Secrets.
    "select hash from tokens",
    "select * from tokens",
    "select hash from public.tokens",
    "select hash from main.tokens",
    "select t.* from tokens t",
    "select (select hash from tokens limit 1)",
    "select max(hash) from tokens",
    "select hex(hash) from tokens",
    "select t::text from public.tokens t",
    "select to_json(t) from tokens t",
    "select count(*) from tokens where hash > x'00'",
    "select 1 where exists (select 1 from tokens where hash = x'53')",
    "select * from tokens order by hash",
    "select spec from specs",
    "select * from specs",
    "select * from public.specs",
    "select spec from jobs",
    "select * from results",
    "select * from task_results",
    "select * from public.task_results",
    "table tokens",
    "select * from jobs natural join specs",
    "select * from pg_authid",
    "select * from pg_shadow",
    "select * from pg_statistic",
    "select * from pg_stats",
    "select query from pg_stat_activity",
    "select * from \"pg_authid\"",
    "select * from \"PG_AUTHID\"",
    "select * from information_schema.tables",
    "select * from _sqlx_migrations",
    "select * from sqlite_dbpage",
    "select * from dbstat",
    "select * from pragma_table_info('tokens')",
    "select * from sqlite_sequence",
    // Files, other machines, other sessions.
    "select pg_read_file('/etc/passwd')",
    "select pg_ls_dir('/')",
    "select pg_read_binary_file('/etc/passwd')",
    "select pg_stat_file('/etc/passwd')",
    "select lo_import('/etc/passwd')",
    "select lo_export(1, '/tmp/stolen')",
    "select readfile('/etc/passwd')",
    "select writefile('/tmp/owned', 'x')",
    "select * from dblink('host=127.0.0.1', 'select 1') as (a int)",
    "select pg_terminate_backend(1)",
    "select pg_cancel_backend(1)",
    "select pg_reload_conf()",
    "select pg_switch_wal()",
    "select pg_advisory_lock(1)",
    "select pg_try_advisory_lock(8315162643297656168)",
    "select pg_notify('x', 'y')",
    "select txid_current()",
    "select nextval('leaderships_lead_seq')",
    "select setval('leaderships_lead_seq', 9)",
    "select query_to_xml('select hash from public.tokens', true, true, '')",
    "select table_to_xml('tokens', true, true, '')",
    "select database_to_xml(true, true, '')",
    "select ts_stat('select hash from public.tokens')",
    "select current_setting('data_directory')",
    // Blocking the store.
    "select pg_sleep(60)",
    "select * from pg_sleep(60)",
    "select pg_sleep_for('1 minute')",
    "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n",
    "select count(*) from generate_series(1, 1000000000) a, generate_series(1, 1000000000) b",
    "select repeat('x', 1000000000)",
    "select lpad('x', 1000000000)",
    "select zeroblob(1000000000)",
    "select randomblob(1000000000)",
];

/// Runs every attack; none may change a row, show a secret, or take long.
async fn withstands(store: &Metastore, fingerprint: impl AsyncFn() -> String) {
    let limits =
        QueryLimits { rows_max: 100, time_max: Duration::from_millis(300), ..QueryLimits::default() };
    let before = fingerprint().await;
    let mut refused = 0;
    for attack in ATTACKS {
        let asked = Instant::now();
        let answer = store.query(attack, limits).await;
        assert!(asked.elapsed() < Duration::from_secs(20), "{attack:?} holds the store up");
        match answer {
            Err(_) => refused += 1,
            Ok(table) => {
                let shown = format!("{:?}", table.rows);
                let letters = String::from_utf8_lossy(&SECRET).into_owned();
                let stolen =
                    [letters.as_str(), "[83, 83", "5353535353", SPEC_SECRET, "root:", "SCRAM", "md5"];
                let found = stolen.iter().find(|secret| shown.contains(**secret));
                assert!(found.is_none(), "{attack:?} shows {found:?}: {shown}");
            }
        }
        assert_eq!(fingerprint().await, before, "{attack:?} changed something");
    }
    println!("{} attacks, {refused} refused, the others without a catch", ATTACKS.len());
    assert!(ATTACKS.len() >= 60 && refused >= 60);
    // The store still answers permitted queries.
    let answer = store.query("select name from users", QueryLimits::default()).await.unwrap();
    assert_eq!(answer.rows, [[Cell::Text("ann".to_string())]]);
}

#[tokio::test]
async fn sqlite_withstands_attacks() {
    let dir = tempfile::tempdir().unwrap();
    let store = Metastore::open(dir.path()).await.unwrap();
    fill(&store).await;
    let fingerprint = async || {
        let mut connection =
            sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).connect().await.unwrap();
        let tables = "SELECT (SELECT group_concat(name || sql) FROM sqlite_master) || (SELECT count(*) FROM jobs) || \
                      (SELECT group_concat(name || role) FROM users) || (SELECT count(*) FROM roles) || \
                      (SELECT hex(hash) FROM tokens)";
        sqlx::query_scalar::<_, String>(tables).fetch_one(&mut connection).await.unwrap()
    };
    withstands(&store, fingerprint).await;
    // Secrets are NULL in answers, so that a query may select a whole row.
    let answer = store.query("select token, hash from tokens", QueryLimits::default()).await.unwrap();
    assert_eq!(answer.rows, [[Cell::Text("t1".to_string()), Cell::Null]]);
}

#[tokio::test]
async fn postgres_withstands_attacks() {
    let Some(postgres) = PrivatePostgres::start_or_say("attacks on PostgreSQL", &["fsync = off"]) else {
        return;
    };
    let url = postgres.url("postgres");
    let store = Metastore::connect(&url).await.unwrap();
    fill(&store).await;
    let fingerprint = async || {
        let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
        let tables = "SELECT (SELECT count(*) FROM pg_class)::text || (SELECT count(*) FROM jobs) || \
                      (SELECT string_agg(name || role, '') FROM users) || (SELECT count(*) FROM roles) || \
                      (SELECT encode(hash, 'hex') FROM tokens) || \
                      (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') || \
                      (SELECT last_value FROM leaderships_lead_seq)";
        sqlx::query_scalar::<_, String>(tables).fetch_one(&mut connection).await.unwrap()
    };
    withstands(&store, fingerprint).await;
    // No query leaves a transaction open.
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sailfish console' \
                AND backend_xmin IS NOT NULL AND state = 'idle in transaction'";
    assert_eq!(sqlx::query_scalar::<_, i64>(open).fetch_one(&mut connection).await.unwrap(), 0);
}

#[tokio::test]
async fn postgres_answers_the_questions_of_people() {
    let Some(postgres) = PrivatePostgres::start_or_say("questions to PostgreSQL", &["fsync = off"]) else {
        return;
    };
    let store = Metastore::connect(&postgres.url("postgres")).await.unwrap();
    fill(&store).await;
    let ask = async |statement: &str, rows_max| {
        store
            .query(
                statement,
                QueryLimits { rows_max, time_max: Duration::from_secs(5), ..QueryLimits::default() },
            )
            .await
    };
    let table =
        ask("select 1 as a, 2.5::float8 as b, 'x' as c, decode('00ff', 'hex') as d, null as e, true as f", 9)
            .await;
    let table = table.unwrap();
    assert_eq!(table.columns, ["a", "b", "c", "d", "e", "f"]);
    let row = [
        Cell::Integer(1),
        Cell::Real(2.5),
        Cell::Text("x".to_string()),
        Cell::Blob(api::KeyBytes(vec![0, 255])),
        Cell::Null,
        Cell::Integer(1),
    ];
    assert_eq!(table.rows, [row]);
    for statement in [
        "select * from jobs",
        "select j.job, count(*) from jobs j join stages s on s.job = j.job group by j.job order by 2 desc limit 3;",
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 9) select sum(i) from n",
        "with a as materialized (select 1 as x), b(y) as not materialized (select 2) select * from a, b",
        "select state, round(avg(ended_ns - started_ns) / 1000000000, 3) from attempts group by state",
        "select row_number() over (partition by state order by job) from jobs",
        "select t.a from (values (1, 2)) as t(a, b) -- the end",
        "select token, user_name from tokens",
        "explain select * from jobs",
        "select kind, count(*) filter (where job is not null) from events group by kind",
        "select to_timestamp(created_ns / 1e9)::text, cast(job as varchar(9)), array[1, 2] from jobs",
    ] {
        let answer = ask(statement, 9).await;
        assert!(answer.is_ok(), "{statement}: {answer:?}");
    }
    let table = ask("select * from generate_series(1, 1000000) as n(i)", 3).await.unwrap();
    assert_eq!((table.rows.len(), table.truncated), (3, true));
    let empty = ask("select job, name from jobs where job < 0", 3).await.unwrap();
    assert_eq!((empty.columns, empty.rows.len()), (vec!["job".to_string(), "name".to_string()], 0));
    let wrong = ask("select * from nowhere", 3).await;
    assert!(
        matches!(wrong, Err(QueryError::Statement { ref message }) if message.contains("nowhere")),
        "{wrong:?}"
    );
    let limits = QueryLimits { rows_max: 3, time_max: Duration::from_millis(50), ..QueryLimits::default() };
    let endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n";
    let slow = store.query(endless, limits).await;
    assert!(matches!(slow, Err(QueryError::TooLong { .. })), "{slow:?}");
}
