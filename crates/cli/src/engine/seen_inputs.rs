//! Inputs that only some nodes see, as their listings.

use crate::exit::Failure;
use crate::options::connect::Site;
use anyhow::{Context, ensure};
use api::seen::{SEEN_FILES_MAX, SeenQuestion, is_seen_path};
use api::{InputFile, SeenBy, SeenFile};
use jobspec::SeenInputs;
use std::path::Path;

/// Lists the files at a path of nodes, page by page. Waits until the nodes have listed them.
pub fn list(site: &Site, path: &str) -> anyhow::Result<SeenInputs> {
    let path = path.trim_end_matches('/');
    let dir = Path::new(path);
    ensure!(is_seen_path(dir), "give an absolute path of nodes without `..`, as in seen:/data/logs");
    let connection = site.connect().map_err(Failure::into_error)?;
    let mut question = SeenQuestion { path: path.to_string(), ..SeenQuestion::default() };
    let mut inputs = SeenInputs::default();
    loop {
        let answer = connection.run(async |client| client.seen(&question).await);
        let answer = answer.map_err(|error| Failure::from_client(error).into_error())?;
        question.listing = Some(answer.listing);
        let Some(page) = answer.page else { continue };
        let mut groups = Vec::new();
        for nodes in page.nodes {
            let by = SeenBy { dir: dir.to_path_buf(), nodes };
            let known = inputs.seen_by.iter().position(|known| *known == by);
            groups.push(known.unwrap_or(inputs.seen_by.len()) as u32);
            if known.is_none() {
                inputs.seen_by.push(by);
            }
        }
        for listed in page.files {
            let group = groups.get(listed.nodes as usize).context("the server sent a broken listing")?;
            inputs.files.push(input(listed.file, *group));
        }
        ensure!(inputs.files.len() <= SEEN_FILES_MAX, "the server listed more than {SEEN_FILES_MAX} files");
        if page.is_last {
            return Ok(inputs);
        }
        question.page += 1;
    }
}

fn input(file: SeenFile, group: u32) -> InputFile {
    let SeenFile { path, size_bytes, mtime_ns, compression } = file;
    InputFile {
        path,
        size_bytes,
        mtime_ns,
        compression,
        named: 0,
        object: None,
        stage_file: None,
        stored: None,
        content: None,
        seen: Some(group),
    }
}
