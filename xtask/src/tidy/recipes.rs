//! Check that the recipes of ARCHITECTURE.md lead to existing files.

use super::Finding;
use super::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const RECIPES: &str = "## Recipes";
/// Extensions by which a word in backticks without a slash is the name of a file.
const FILE_ENDS: &[&str] = &[".rs", ".py", ".md", ".json", ".sh", ".sql", ".toml"];

/// Checks that every path in backticks exists. A name without a folder is in the folder of the last full path of its
/// recipe.
pub fn paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = tree.text(ARCHITECTURE).unwrap_or("").lines().enumerate();
    let mut folder: Option<String> = None;
    let recipes = lines.skip_while(|(_, line)| *line != RECIPES).skip(1);
    for (index, line) in recipes.take_while(|(_, line)| !line.starts_with("## ")) {
        if line.is_empty() {
            folder = None;
        }
        for word in code_spans(line).filter(|word| is_path(word)) {
            let path = match (&folder, tree.exists(first_segment(word)) && word.contains('/')) {
                (_, true) => word.to_string(),
                (Some(folder), false) => format!("{folder}/{word}"),
                (None, false) => {
                    let message = format!("{word} follows no full path of its recipe: write the full path");
                    findings.push(Finding::new(ARCHITECTURE, index + 1, message));
                    continue;
                }
            };
            if !tree.exists(&path) {
                let message =
                    format!("a recipe leads to {path}, which does not exist: write the current path");
                findings.push(Finding::new(ARCHITECTURE, index + 1, message));
            } else if word.contains('/') {
                folder = Some(folder_of(tree, &path));
            }
        }
    }
    findings
}

/// Returns the words in backticks on a line. No recipe breaks a path over two lines.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(word: &str) -> bool {
    let letters = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    word.chars().all(letters) && (word.contains('/') || FILE_ENDS.iter().any(|end| word.ends_with(end)))
}

fn first_segment(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// Returns the folder of a path: the parent of a file, a folder itself.
fn folder_of(tree: &Tree, path: &str) -> String {
    let is_file = tree.files().any(|file| file.path == path);
    match path.rsplit_once('/') {
        Some((folder, _)) if is_file => folder.to_string(),
        _ => path.trim_end_matches('/').to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::paths;

    #[test]
    fn recipes_that_lead_nowhere_are_found() {
        let check = |recipe: &str, expected: &[&str]| {
            let text = format!("see `gone.rs`\n## Recipes\n\n{recipe}\n## End\n`gone.rs`\n");
            let tree = [
                ("ARCHITECTURE.md", text.as_str()),
                ("crates/a/src/lib.rs", ""),
                ("crates/a/src/rules.rs", ""),
                ("crates/a/src/rules/words.rs", ""),
                ("docs/openapi.json", ""),
            ];
            check_finds(paths, &tree, expected);
        };
        check("**Add.** `crates/a/src/lib.rs`, `rules.rs`, `rules/words.rs` and `docs/openapi.json`.", &[]);
        check(
            "**Add.** In `crates/a/src`, `rules.rs`: `JobSpec`, `cargo test -p a`, `a::b`, `samples`.",
            &[],
        );
        check(
            "`crates/a/src/gone.rs`\n`rules.rs`",
            &[
                "ARCHITECTURE.md:4: a recipe leads to crates/a/src/gone.rs",
                "ARCHITECTURE.md:5: rules.rs follows no full path",
            ],
        );
        check("`crates/a/src/lib.rs`\n\n`rules.rs`", &["ARCHITECTURE.md:6: rules.rs follows no full path"]);
        check("`docs/openapi.json`, `rules.rs`", &["ARCHITECTURE.md:4: a recipe leads to docs/rules.rs"]);
    }
}
