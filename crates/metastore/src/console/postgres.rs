//! The console of PostgreSQL: a separate session under a role that may read only the views of the schema `console`, in
//! a read-only transaction with a time limit.

use super::statement::{Dialect, single_statement};
use super::{Answer, QueryError, QueryLimits};
use crate::StoreError;
use crate::database::Connection;
use crate::open::connect_postgres;
use api::KeyBytes;
use api::history::{Cell, Table};
use futures_util::TryStreamExt;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{
    AssertSqlSafe, Column, Connection as _, Executor, Row, SqlSafeStr, Statement, TypeInfo, ValueRef,
};
use std::fmt::Write;
use std::path::Path;

/// The role of the session of a statement.
const READER: &str = "sailfish_reader";

pub(super) async fn query_read_only(
    path: &Path,
    options: &PgConnectOptions,
    statement: &str,
    limits: QueryLimits,
) -> Result<Table, QueryError> {
    let statement = single_statement(statement, Dialect::Postgres)?;
    let timeout = limits.time_max.as_millis().max(1).to_string();
    // The session starts with this role, so that RESET ROLE returns to it.
    let settings = [
        ("role", READER),
        ("default_transaction_read_only", "on"),
        ("search_path", "console"),
        ("standard_conforming_strings", "on"),
        ("statement_timeout", timeout.as_str()),
        ("idle_in_transaction_session_timeout", timeout.as_str()),
        ("lock_timeout", timeout.as_str()),
        ("work_mem", "16MB"),
        ("max_parallel_workers_per_gather", "0"),
    ];
    let options = options.clone().application_name("sailfish console").options(settings);
    let mut connection = match connect_postgres(path, options).await {
        Ok(Connection::Postgres(connection)) => connection,
        Ok(Connection::Sqlite(_)) => unreachable!("an address of PostgreSQL leads to PostgreSQL"),
        Err(StoreError::Unreachable { reason, .. } | StoreError::Denied { reason, .. })
            if reason.contains(READER) || reason.contains("\"role\"") =>
        {
            return Err(QueryError::NoReader { reason });
        }
        Err(error) => return Err(error.into()),
    };
    let answered = tokio::time::timeout(limits.time_max, ask(&mut connection, path, statement, limits)).await;
    let too_long = QueryError::TooLong { seconds: limits.time_max.as_secs() };
    let answer = match answered {
        Ok(answer) => answer,
        Err(_) => Err(too_long),
    };
    // Any change of the session by the statement ends with it.
    let _ = connection.close_hard().await;
    answer
}

async fn ask(
    connection: &mut PgConnection,
    path: &Path,
    statement: &str,
    limits: QueryLimits,
) -> Result<Table, QueryError> {
    let wrong = |error: sqlx::Error| wrong(path, limits, error);
    let mut transaction = connection.begin_with("BEGIN TRANSACTION READ ONLY").await.map_err(wrong)?;
    // It is prepared alone first: a text that is valid only inside of ours is not a statement.
    let text = AssertSqlSafe(statement.to_string()).into_sql_str();
    let prepared = transaction.prepare(text).await.map_err(wrong)?;
    let columns: Vec<(String, String)> = prepared
        .columns()
        .iter()
        .map(|column| (column.name().to_string(), column.type_info().name().to_string()))
        .collect();
    let explains = statement.trim_start().get(..7).is_some_and(|word| word.eq_ignore_ascii_case("explain"));
    let text = if explains { statement.to_string() } else { wrapped(statement, &columns, limits.rows_max) };
    let names = columns.into_iter().map(|(name, _)| name).collect();
    let mut answer = Answer::new(names, limits);
    let mut rows = sqlx::query(AssertSqlSafe(text)).persistent(false).fetch(&mut *transaction);
    while let Some(row) = rows.try_next().await.map_err(wrong)? {
        if !answer.has_room() {
            break;
        }
        let cells: Result<Vec<Cell>, QueryError> = (0..row.len()).map(|index| cell(&row, index)).collect();
        answer.push(cells?)?;
    }
    Ok(answer.table)
}

/// Wraps the statement as a table in ours, which reads one row more than the limit and converts all other types to
/// text. A statement that changes data cannot be a table, either.
fn wrapped(statement: &str, columns: &[(String, String)], rows_max: usize) -> String {
    let mut values = String::new();
    let mut names = String::new();
    for (index, (_, kind)) in columns.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let cast = match kind.as_str() {
            "INT2" | "INT4" | "INT8" | "FLOAT4" | "FLOAT8" | "BYTEA" | "TEXT" | "BOOL" => "",
            _ => "::text",
        };
        let _ = write!(values, "{comma}answer.c{index}{cast}");
        let _ = write!(names, "{comma}c{index}");
    }
    if columns.is_empty() {
        return statement.to_string();
    }
    format!("SELECT {values} FROM ({statement}\n) AS answer({names}) LIMIT {}", rows_max.saturating_add(1))
}

fn wrong(path: &Path, limits: QueryLimits, error: sqlx::Error) -> QueryError {
    let message = match &error {
        sqlx::Error::Database(error) if error.code().as_deref() == Some("57014") => {
            return QueryError::TooLong { seconds: limits.time_max.as_secs() };
        }
        sqlx::Error::Database(error) => error.message().to_string(),
        other => other.to_string(),
    };
    match StoreError::from_driver(path, error) {
        StoreError::Database { .. } | StoreError::Denied { .. } => QueryError::Statement { message },
        other => QueryError::Store(other),
    }
}

fn cell(row: &PgRow, index: usize) -> Result<Cell, QueryError> {
    let wrong = |error: sqlx::Error| QueryError::Value {
        column: row.column(index).name().to_string(),
        reason: error.to_string(),
    };
    let value = row.try_get_raw(index).map_err(wrong)?;
    if value.is_null() {
        return Ok(Cell::Null);
    }
    let kind = value.type_info().name().to_string();
    Ok(match kind.as_str() {
        "INT2" => Cell::Integer(row.try_get::<i16, _>(index).map_err(wrong)?.into()),
        "INT4" => Cell::Integer(row.try_get::<i32, _>(index).map_err(wrong)?.into()),
        "INT8" => Cell::Integer(row.try_get(index).map_err(wrong)?),
        "BOOL" => Cell::Integer(row.try_get::<bool, _>(index).map_err(wrong)?.into()),
        "FLOAT4" => Cell::Real(row.try_get::<f32, _>(index).map_err(wrong)?.into()),
        "FLOAT8" => Cell::Real(row.try_get(index).map_err(wrong)?),
        "BYTEA" => Cell::Blob(KeyBytes(row.try_get(index).map_err(wrong)?)),
        _ => Cell::Text(row.try_get(index).map_err(wrong)?),
    })
}
