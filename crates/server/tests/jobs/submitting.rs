//! Tests of jobs that are refused at submission, and of several servers on one state directory.

use crate::world::{Place, honest, join, node, spec, splits};
use api::InputFile;
use ids::JobId;
use metastore::JobState;
use server::{ControlError, History, JobOutcome, PullReply, PullRequest, ServerError};

#[test]
fn an_existing_output_is_not_touched() {
    let place = Place::new();
    let server = place.open();
    std::fs::create_dir(place.path("out")).unwrap();
    let refused = server.submit(place.spec(), splits(1));
    assert!(matches!(refused, Err(ServerError::OutputExists { .. })), "{refused:?}");
    std::fs::write(place.path("file"), "mine").unwrap();
    let mut onto_file = spec(place.dir.path(), "file");
    onto_file.overwrite = true;
    let refused = server.submit(onto_file, splits(1));
    assert!(matches!(refused, Err(ServerError::OutputNotADirectory { .. })), "{refused:?}");
}

#[test]
fn overwriting_never_takes_the_input_away() {
    let place = Place::new();
    let server = place.open();
    std::fs::create_dir(place.path("out")).unwrap();
    let input = place.path("out/input.txt");
    std::fs::write(&input, "x").unwrap();
    let mut spec = place.spec();
    spec.overwrite = true;
    spec.inputs = vec![InputFile {
        path: input.clone(),
        size_bytes: 1,
        mtime_ns: 0,
        compression: None,
        named: 0,
        object: None,
        stage_file: None,
        stored: None,
        content: None,
        seen: None,
    }];
    let refused = server.submit(spec, splits(1));
    assert!(
        matches!(&refused, Err(ServerError::OutputHoldsWhatTheJobNeeds { inside, .. }) if *inside == input),
        "{refused:?}"
    );
    // What no job wrote is not taken away either.
    let mut spec = place.spec();
    spec.overwrite = true;
    let refused = server.submit(spec.clone(), splits(1));
    assert!(
        matches!(&refused, Err(ServerError::OutputNotOurs(foreign)) if foreign.entry == "input.txt"),
        "{refused:?}"
    );
    std::fs::remove_file(input).unwrap();
    assert!(server.submit(spec, splits(1)).is_ok());
}

#[test]
fn disk_that_is_no_directory_fails_at_submit() {
    let place = Place::new();
    let server = place.open();
    std::fs::write(place.path("disk"), "a file").unwrap();
    let refused = server.submit(place.spec(), splits(1));
    assert!(matches!(refused, Err(ServerError::DirectoryUnwritable { .. })), "{refused:?}");
    assert_eq!(place.left(), Vec::<String>::new());
    let history = History::open(&place.path("state")).unwrap();
    let row = history.read(async |store| store.job(JobId(1)).await).unwrap().unwrap();
    assert_eq!(row.state, JobState::Failed);
}

#[test]
fn unstorable_path_is_refused_and_server_goes_on() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let server = place.open();
    let mut unstorable = place.spec();
    unstorable.output = place.path("").join(std::ffi::OsStr::from_bytes(b"out-\xff"));
    let refused = server.submit(unstorable, splits(1));
    assert!(matches!(refused, Err(ServerError::Store(_))), "{refused:?}");
    assert_eq!(place.left(), Vec::<String>::new());
    assert!(server.submit(place.spec(), splits(1)).is_ok());
}

#[test]
fn two_servers_share_a_state_directory() {
    let place = Place::new();
    let (first, second) = (place.open(), place.open());
    assert_ne!(first.owner_uuid(), second.owner_uuid());
    let one = first.submit(spec(place.dir.path(), "one"), splits(4)).unwrap();
    let two = second.submit(spec(place.dir.path(), "two"), splits(4)).unwrap();
    assert_ne!(one.job, two.job);
    let (first_node, second_node) = (node(&first, 2, honest()), node(&second, 2, honest()));
    assert!(matches!(first.wait(one.job).unwrap(), JobOutcome::Succeeded(_)));
    assert!(matches!(second.wait(two.job).unwrap(), JobOutcome::Succeeded(_)));
    assert!(matches!(first.wait(two.job), Err(ServerError::Control(ControlError::UnknownJob { .. }))));
    join(first_node);
    join(second_node);
    assert_eq!(place.left(), ["one", "two"]);
}

#[test]
fn a_shut_down_server_interrupts_its_jobs() {
    let place = Place::new();
    let server = place.open();
    let job = server.submit(place.spec(), splits(2)).unwrap().job;
    let request = PullRequest { node: ids::NodeId(0), slot: 0, is_place: false, finished: None };
    let PullReply::Run(assignment) = server.pull(request).unwrap() else { panic!("there is work") };
    server.shutdown();
    server.shutdown();
    assert!(assignment.job.cancelled.load(std::sync::atomic::Ordering::Relaxed));
    assert!(matches!(server.wait(job), Err(ServerError::ShutDown)));
    assert_eq!(place.left(), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(place.path("state/owners")).unwrap().count(), 0);
    let history = History::open(&place.path("state")).unwrap();
    let row = history.read(async |store| store.job(job).await).unwrap().unwrap();
    assert_eq!(row.state, JobState::Interrupted);
    assert!(row.cleaned_ns.is_some());
}
