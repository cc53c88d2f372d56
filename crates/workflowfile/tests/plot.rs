//! Drawings of workflows.

use std::fs;
use workflowfile::{JobMachines, Sources, plot, read};

fn drawing(text: &str) -> Result<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("flow.toml");
    fs::write(&file, text).unwrap();
    plot(&read(&file, Sources::OnNodes, JobMachines::NONE).unwrap().spec)
}

const TEXT: &str = r#"
[[step]]
name = "a <&> \"b\""
command = "echo ']]>' '\u0001'"
stdout = "made"

[[step]]
name = "stream"
command = "cat"
stdin = "made"
stdout = "kept"

[[step]]
name = "last"
words = ["true"]
after = ["stream"]
"#;

#[test]
fn drawings_are_xml_with_lines_and_files() {
    let svg = drawing(TEXT).unwrap();
    let mut reader = quick_xml::Reader::from_str(&svg);
    let mut names = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(start) => {
                names.push(String::from_utf8(start.name().as_ref().to_vec()).unwrap());
            }
            _ => {}
        }
    }
    let count = |name: &str| names.iter().filter(|other| *other == name).count();
    assert_eq!((count("svg"), count("title")), (1, 5));
    assert_eq!(svg.matches("class=\"box\"").count(), 3);
    assert_eq!((svg.matches("class=\"line\"").count(), svg.matches("class=\"line stream\"").count()), (1, 1));
    assert!(svg.contains("a &lt;&amp;&gt; &quot;b&quot;</text>"), "{svg}");
    assert!(svg.contains("class=\"temporary\"") && svg.contains(">made</text>"));
    assert!(svg.contains("<title>last after stream</title>") && svg.contains("<title>made</title>"));
    assert!(!svg.contains('\u{1}'));
}

#[test]
fn drawings_have_a_size_limit() {
    let many =
        |sweep: &str| format!("[[step]]\nname = \"s\"\nwords = [\"x\"]\nsweep = {{ k = [{sweep}] }}\n");
    let list = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    assert!(drawing(&many(&list(2000))).is_ok());
    let said = drawing(&many(&list(2001))).unwrap_err();
    assert_eq!(said, "it has 2001 steps, and a drawing at most 2000: see them with `sailfish workflow plan`");
    let step = |number: usize| {
        let after = (0..number).map(|before| format!("\"{before}\"")).collect::<Vec<_>>().join(",");
        format!("[[step]]\nname = \"{number}\"\nwords = [\"x\"]\nafter = [{after}]\n")
    };
    let said = drawing(&(0..100).map(step).collect::<String>()).unwrap_err();
    assert!(said.starts_with("its lines cross more than 20000 layers"), "{said}");
}
