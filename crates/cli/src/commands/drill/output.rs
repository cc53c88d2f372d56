//! The table of a drill, and the same as JSON.

use super::trial::{Row, Verdict};
use crate::show::escape;
use crate::show::quantity::counted;
use crate::show::tables::{left, right, table};
use serde_json::{Value, json};
use std::fmt::Write;

/// Totals of all jobs: their records, and the errors in them.
#[derive(Default)]
struct Sum {
    jobs: u64,
    records: u64,
    lost: u64,
    twice: u64,
    wrong: u64,
    failed: u64,
}

impl Sum {
    fn of(rows: &[Row]) -> Sum {
        let mut sum = Sum::default();
        for verdict in rows.iter().flat_map(|row| &row.verdicts) {
            sum.jobs += 1;
            match &verdict.judged {
                Ok(judged) => {
                    sum.records += judged.records;
                    sum.lost += judged.lost;
                    sum.twice += judged.twice;
                    sum.wrong += judged.wrong;
                }
                Err(_) => sum.failed += 1,
            }
        }
        sum
    }
}

fn records(count: u64) -> String {
    if count == 0 { "nothing".to_string() } else { counted(count, "record") }
}

pub fn text(seed: u64, rows: &[Row]) -> String {
    let columns = [
        right("round"),
        left("fault"),
        left("node"),
        left("moment"),
        left("fault injected"),
        left("reaction"),
        left("verdict"),
    ];
    let cells = |row: &Row| {
        vec![
            row.round.to_string(),
            row.fault.clone(),
            escape::cell(row.node.as_deref().unwrap_or("-")),
            row.moment.clone(),
            row.fired.as_ref().map_or_else(|_| "not injected".to_string(), |what| escape::cell(what)),
            match (&row.fired, row.did.is_empty()) {
                (Err(_), true) => "-".to_string(),
                (Ok(_), true) => "none needed".to_string(),
                (_, false) => row.did.join(", "),
            },
            if row.is_well() { "right".to_string() } else { "WRONG".to_string() },
        ]
    };
    let mut text = table(&columns, rows.iter().map(cells).collect());
    for said in rows.iter().flat_map(|row| &row.said) {
        let _ = writeln!(text, "{}", escape::sentence(said));
    }
    for row in rows {
        if let Err(why) = &row.fired {
            let _ = writeln!(
                text,
                "not injected: {} in round {}: {}",
                row.fault,
                row.round,
                escape::sentence(why)
            );
        }
    }
    for verdict in rows.iter().flat_map(|row| &row.verdicts).filter(|verdict| !verdict.is_right()) {
        add_wrong(&mut text, verdict);
    }
    let sum = Sum::of(rows);
    let fired = rows.iter().filter(|row| row.fired.is_ok()).count() as u64;
    let _ = writeln!(
        text,
        "seed {seed}: {} injected, {} with {} compared",
        counted(fired, "fault"),
        counted(sum.jobs, "job"),
        counted(sum.records, "record")
    );
    if sum.failed > 0 {
        let _ = writeln!(text, "{} without an output", counted(sum.failed, "job"));
    }
    let (lost, twice, wrong) = (records(sum.lost), records(sum.twice), records(sum.wrong));
    let _ = writeln!(text, "lost: {lost}, twice: {twice}, wrong: {wrong}");
    text
}

fn add_wrong(text: &mut String, verdict: &Verdict) {
    let who = format!("job {} ({})", verdict.job, escape::cell(&verdict.name));
    match &verdict.judged {
        Err(why) => {
            let _ = writeln!(text, "{who} {}", escape::sentence(why));
        }
        Ok(judged) => {
            let (lost, twice, wrong) = (records(judged.lost), records(judged.twice), records(judged.wrong));
            let _ = writeln!(text, "{who}: lost: {lost}, twice: {twice}, wrong: {wrong}");
            for named in &judged.named {
                let _ = writeln!(text, "  {named}");
            }
        }
    }
}

pub fn json(seed: u64, rows: &[Row]) -> anyhow::Result<String> {
    let sum = Sum::of(rows);
    let value = json!({
        "seed": seed,
        "faults": rows.iter().map(row_value).collect::<Vec<Value>>(),
        "jobs": sum.jobs,
        "records": sum.records,
        "failed": sum.failed,
        "lost": sum.lost,
        "twice": sum.twice,
        "wrong": sum.wrong,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&value)?))
}

fn row_value(row: &Row) -> Value {
    let job = |verdict: &Verdict| match &verdict.judged {
        Err(why) => json!({ "job": verdict.job.0, "name": verdict.name, "failed": why }),
        Ok(judged) => json!({
            "job": verdict.job.0,
            "name": verdict.name,
            "records": judged.records,
            "lost": judged.lost,
            "twice": judged.twice,
            "wrong": judged.wrong,
            "named": judged.named,
        }),
    };
    json!({
        "round": row.round,
        "fault": row.fault,
        "node": row.node,
        "moment": row.moment,
        "replicates": row.replicates,
        "fired": row.fired.is_ok(),
        "what": row.fired.as_ref().unwrap_or_else(|why| why),
        "did": row.did,
        "said": row.said,
        "gone_after_seconds": row.gone_after.map(|after| after.as_secs_f64()),
        "came_back": row.came_back,
        "right": row.is_well(),
        "seconds": row.took.as_secs_f64(),
        "jobs": row.verdicts.iter().map(job).collect::<Vec<Value>>(),
    })
}
