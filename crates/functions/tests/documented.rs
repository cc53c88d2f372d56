//! The tables of built-in functions in docs/cli.md are those of the list.

use std::path::Path;

const BEGIN: &str =
    "<!-- built-in functions, written by SAILFISH_WRITE_BUILTINS=1 cargo test -p functions -->\n";
const END: &str = "<!-- end of built-in functions -->\n";

#[test]
fn the_tables_checked_in_are_current() {
    let path = Path::new("../../docs/cli.md");
    let page = std::fs::read_to_string(path).expect("docs/cli.md can be read");
    let (before, rest) = page.split_once(BEGIN).expect("docs/cli.md has the line before the tables");
    let (_, after) = rest.split_once(END).expect("docs/cli.md has the line behind the tables");
    let current = format!("{before}{BEGIN}{}{END}{after}", functions::markdown_tables());
    if std::env::var_os("SAILFISH_WRITE_BUILTINS").is_some() {
        std::fs::write(path, &current).expect("docs/cli.md can be written");
        return;
    }
    let advice = "run `SAILFISH_WRITE_BUILTINS=1 cargo test -p functions` and commit docs/cli.md";
    assert!(page == current, "the tables of docs/cli.md are not those of the list: {advice}");
}
