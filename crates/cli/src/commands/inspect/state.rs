//! `sailfish state "select ..."`: read-only SQL over the store.

use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::tables::{Column, table};
use crate::show::terminal::{print, tell};
use crate::show::{escape, quantity};
use api::history::StateQuestion;
use clap::Args;
use jobspec::state_dir;
use metastore::{Cell, QueryError, QueryLimits, Table, query_read_only};
use serde_json::{Number, Value};

#[derive(Debug, Args)]
pub struct QueryArgs {
    /// One SQL statement: select, with, values or explain
    pub statement: String,
    #[command(flatten)]
    pub state: StateArgs,
    /// Maximum number of rows to show
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
    /// Print the rows as a JSON list of objects
    #[arg(long)]
    pub json: bool,
}

/// Prints the answer to a statement.
pub fn run(args: &QueryArgs) -> Result<(), Failure> {
    let answer = match args.state.connection()? {
        Some(connection) => {
            let rows_max = u32::try_from(args.limit).unwrap_or(u32::MAX);
            let question = StateQuestion { statement: args.statement.clone(), rows_max };
            connection.run(async |client| client.ask(&question).await).map_err(Failure::from_client)?
        }
        None => ask_this_machine(args)?,
    };
    let text = if args.json { as_json(&answer)? } else { as_table(&answer) };
    print(&text)?;
    if answer.truncated {
        let shown = quantity::counted(answer.rows.len() as u64, "row");
        tell(&format!("sailfish: {shown} shown, there are more; --limit N shows them"));
    }
    Ok(())
}

fn ask_this_machine(args: &QueryArgs) -> Result<Table, Failure> {
    let state_dir = state_dir::state_dir(args.state.state.as_deref()).map_err(Failure::refused)?;
    if !store::exists(&state_dir) {
        return Err(Failure::refused(store::nothing_there(&state_dir)));
    }
    let limits = QueryLimits { rows_max: args.limit, ..QueryLimits::default() };
    let answer = store::run(query_read_only(&state_dir, &args.statement, limits))?;
    answer.map_err(|error| match error {
        QueryError::TooLong { .. } | QueryError::Value { .. } => Failure::from(anyhow::Error::from(error)),
        other => Failure::refused(other),
    })
}

fn as_table(answer: &Table) -> String {
    let is_number = |index: usize| {
        let mut cells = answer.rows.iter().map(|row| &row[index]).filter(|cell| **cell != Cell::Null);
        cells.clone().next().is_some() && cells.all(|cell| matches!(cell, Cell::Integer(_) | Cell::Real(_)))
    };
    let column = |(index, name): (usize, &String)| match is_number(index) {
        true => Column::Right(name.clone().into()),
        false => Column::Left(name.clone().into()),
    };
    let columns: Vec<Column> = answer.columns.iter().enumerate().map(column).collect();
    let rows = answer.rows.iter().map(|row| row.iter().map(text_of).collect()).collect();
    table(&columns, rows)
}

fn text_of(cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Text(text) => escape::cell(text),
        Cell::Blob(bytes) => escape::blob(&bytes.0),
    }
}

/// Formats a list of objects, one per line, fields in the order of the columns. Blobs are hex, like keys in every
/// message.
fn as_json(answer: &Table) -> anyhow::Result<String> {
    let value = |cell: &Cell| match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => Value::from(*number),
        Cell::Real(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Cell::Text(text) => Value::from(text.as_str()),
        Cell::Blob(bytes) => Value::from(hex::encode(&bytes.0)),
    };
    let mut objects = Vec::with_capacity(answer.rows.len());
    for row in &answer.rows {
        let mut fields = Vec::with_capacity(row.len());
        for (name, cell) in answer.columns.iter().zip(row) {
            fields.push(format!(
                "{}: {}",
                serde_json::to_string(name)?,
                serde_json::to_string(&value(cell))?
            ));
        }
        objects.push(format!("  {{{}}}", fields.join(", ")));
    }
    match objects.is_empty() {
        true => Ok("[]\n".to_string()),
        false => Ok(format!("[\n{}\n]\n", objects.join(",\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{as_json, as_table};
    use api::KeyBytes;
    use metastore::{Cell, Table};

    #[test]
    fn every_kind_of_cell_is_shown() {
        let answer = Table {
            columns: vec!["number".into(), "text".into(), "key".into()],
            rows: vec![
                vec![Cell::Integer(7), Cell::Text("a\nb".into()), Cell::Blob(KeyBytes(b"word".to_vec()))],
                vec![Cell::Real(0.5), Cell::Null, Cell::Blob(KeyBytes(vec![0, 255]))],
            ],
            truncated: false,
        };
        let text = as_table(&answer);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "number  text  key");
        assert_eq!((lines[2], lines[3]), ("     7  a\\nb  word", "   0.5        x'00ff'"));
        let text = as_json(&answer).unwrap();
        assert!(text.starts_with("[\n  {\"number\": 7, \"text\": \"a\\nb\", "), "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json[0]["text"], "a\nb");
        assert_eq!((&json[1]["text"], &json[1]["key"]), (&serde_json::Value::Null, &"00ff".into()));
    }
}
