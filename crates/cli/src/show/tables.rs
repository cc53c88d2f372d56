//! The common look of tables: no borders, a line below the header, numbers aligned to the right.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use std::borrow::Cow;

/// Header and rows extend to the margins of the terminal; only the line below the header is drawn.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Alignment of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// Text.
    Left(Cow<'static, str>),
    /// Numbers.
    Right(Cow<'static, str>),
}

/// Makes a column of text.
pub const fn left(name: &'static str) -> Column {
    Column::Left(Cow::Borrowed(name))
}

/// Makes a column of numbers.
pub const fn right(name: &'static str) -> Column {
    Column::Right(Cow::Borrowed(name))
}

/// Renders a table; on a terminal it is fitted to its width.
pub fn table(columns: &[Column], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(columns.iter().map(|column| match column {
        Column::Left(name) | Column::Right(name) => name.as_ref(),
    }));
    table.add_rows(rows);
    for (index, column) in columns.iter().enumerate() {
        if let Some(drawn) = table.column_mut(index) {
            drawn.set_padding((0, 1));
            if matches!(column, Column::Right(_)) {
                drawn.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Renders lines `name  value`, with aligned values.
pub fn facts(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("  {name:<width$}  {value}\n")).collect()
}
