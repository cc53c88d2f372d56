//! The document of the routes is the one that is checked in. That every route is in it needs no test: the routes
//! are made of it.

use std::path::Path;

#[test]
fn the_document_checked_in_is_current() {
    let path = Path::new("../../docs/openapi.json");
    let current = controlport::openapi_text();
    if std::env::var_os("SAILFISH_WRITE_OPENAPI").is_some() {
        std::fs::write(path, &current).expect("docs/openapi.json can be written");
    }
    let checked_in = std::fs::read_to_string(path).expect("docs/openapi.json can be read");
    let advice = "run `SAILFISH_WRITE_OPENAPI=1 cargo test -p controlport` and commit docs/openapi.json";
    assert!(checked_in == current, "docs/openapi.json is not what the routes say: {advice}");
}
