//! Stored files through ports: what is read is what was written, or an error, and what is refused leaves nothing.

use crate::stage_files::draw;
use crate::stored_world::{INCARNATION, NOW, World, bytes_of, file, many_parts, read_range};
use api::StoredPart;
use axum::Router;
use axum::routing::post;
use dataport::wire::stored::{StoredFetchRequest, StoredReadRequest};
use dataport::{DataError, PARTS_PER_REQUEST_MAX, PartRange, Token};
use ids::{ConcreteId, DiskId, NodeId};
use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use trust::{DataRight, FileGrant, FileRight, StoredGrant};

const BLOCK: usize = 64 << 10;

/// Waits until a node has no file.
fn until_nothing_is_left(world: &World, node: usize) {
    let is_so = |_| {
        std::thread::yield_now();
        world.nodes[node].present().is_empty()
    };
    assert!((0..1_000_000).any(is_so), "{:?}", world.nodes[node].present());
}

fn check_ranges(world: &World, node: usize, parts: &[(ConcreteId, Vec<u8>)], stored: &[StoredPart]) {
    for round in 0..30u64 {
        let mut draws = round << 32;
        let mut next = |end: u64| {
            draws += 1;
            draw(draws, end)
        };
        let mut ranges = Vec::new();
        for _ in 0..=next(40) {
            let part = stored[next(stored.len() as u64) as usize];
            let offset = next(part.bytes + 1);
            ranges.push(PartRange { part, offset, bytes: next(part.bytes - offset + 1) });
        }
        let read = world.read(&world.peer(node), ranges.clone()).expect("read");
        for (range, read) in ranges.iter().zip(read) {
            let (_, bytes) = parts.iter().find(|(id, _)| *id == range.part.concrete).expect("a part");
            assert!(read == bytes[range.offset as usize..][..range.bytes as usize], "{range:?}");
        }
    }
}

#[test]
fn uploaded_parts_are_read_back_by_ranges() {
    let world = World::start();
    let parts = many_parts();
    let stored = world.upload(0, &parts).expect("uploaded");
    let whole = world.read(&world.peer(0), stored.iter().copied().map(PartRange::whole).collect());
    let whole = whole.expect("read");
    assert!(parts.iter().map(|(_, bytes)| bytes).eq(whole.iter()));
    check_ranges(&world, 0, &parts, &stored);
    // A range ends with its part.
    let beyond = PartRange { part: stored[0], offset: 5, bytes: u64::MAX };
    assert_eq!(world.read(&world.peer(0), vec![beyond]).expect("read"), [&parts[0].1[5..]]);
}

#[test]
fn fetched_parts_are_the_same() {
    let world = World::start();
    let parts = many_parts();
    let stored = world.upload(0, &parts).expect("uploaded");
    let client = world.client(FileRight::Write);
    let disk = world.nodes[1].disk;
    let fetch = |from, parts: &[StoredPart]| client.ask_to_fetch(&world.peer(1), disk, NodeId(from), parts);
    fetch(1, &stored).expect("fetched");
    assert_eq!(world.nodes[1].present(), world.nodes[0].present());
    check_ranges(&world, 1, &parts, &stored);
    // Once more is the same.
    fetch(1, &stored).expect("fetched");
    let refused = |from, part: StoredPart| match fetch(from, &[part]) {
        Err(error @ DataError::Refused { status, .. }) if error.is_of_the_node() => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(5, stored[0]), 502);
    let other = StoredPart { concrete: file(5000), ..stored[0] };
    assert_eq!(refused(1, other), 502);
    assert!(!world.nodes[1].present().contains(&file(5000)));
}

#[test]
fn existing_part_is_never_replaced() {
    let world = World::start();
    let (old, new) = (bytes_of(1, 100_000), bytes_of(2, 100_000));
    let stored = world.upload(0, &[(file(1), old.clone())]).expect("uploaded");
    world.upload(0, &[(file(1), old.clone()), (file(2), new.clone())]).expect("the same");
    match world.upload(0, &[(file(3), old.clone()), (file(1), new)]) {
        Err(DataError::Refused { status: 409, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(world.nodes[0].present(), [file(1), file(2)]);
    assert!(world.read(&world.peer(0), vec![PartRange::whole(stored[0])]).expect("read") == [old]);
}

#[test]
fn flipped_bit_on_disk_is_reported() {
    let world = World::start();
    let parts = [100, 3 * BLOCK, 10 * BLOCK].map(|count| (file(count as u32), bytes_of(1, count)));
    let stored = world.upload(0, &parts).expect("uploaded");
    for (number, (part, (id, bytes))) in stored.iter().zip(&parts).enumerate() {
        let path = world.nodes[0].files.path(*id);
        let mut flipped = bytes.clone();
        flipped[bytes.len() - 7] ^= 4;
        std::fs::write(&path, flipped).expect("written");
        match world.read(&world.peer(0), vec![PartRange::whole(*part)]) {
            Err(error @ DataError::StoredDamaged { file, .. }) if file == *id => {
                assert!(error.is_of_the_node() && !error.is_passing());
            }
            other => panic!("{other:?}"),
        }
        let damaged = world.nodes[0].damaged.lock().unwrap().clone();
        assert_eq!((damaged.len(), damaged[number].0), (number + 1, *part));
        // Other blocks are intact.
        if bytes.len() > BLOCK {
            let range = PartRange { part: *part, offset: 9, bytes: 1000 };
            assert_eq!(world.read(&world.peer(0), vec![range]).expect("read"), [&bytes[9..1009]]);
        }
    }
}

#[test]
fn missing_part_does_not_end_the_others() {
    let world = World::start();
    let parts: Vec<_> = (0..3).map(|number| (file(number), bytes_of(number, 70_000))).collect();
    let stored = world.upload(0, &parts).expect("uploaded");
    world.nodes[0].files.remove(file(1)).expect("removed");
    std::fs::remove_file(format!("{}.sums", world.nodes[0].files.path(file(2)).display())).expect("removed");
    let ranges = [1, 0, 2, 0].map(|number| PartRange::whole(stored[number]));
    let mut stream = world.client(FileRight::Read).read_parts(&world.peer(0), ranges.to_vec()).expect("read");
    let expected = [None, Some(0), None, Some(0)];
    for number in expected {
        match (read_range(&mut stream), number) {
            (Ok(bytes), Some(number)) => assert!(bytes == parts[number].1),
            (Err(DataError::StoredDamaged { .. }), None) => assert!(stream.goes_on()),
            (other, _) => panic!("{other:?}"),
        }
    }
    assert!(matches!(stream.next_piece(), Ok(None)));
}

#[test]
fn flipped_bytes_on_the_way_never_pass() {
    let world = World::start();
    let parts = [(file(1), bytes_of(1, 3000)), (file(2), bytes_of(2, 3 * BLOCK + 9))];
    let stored = world.upload(0, &parts).expect("uploaded");
    let mut failures = 0;
    for at in (0..400).chain((400..200_000).step_by(3001)) {
        world.lines[0].state.flip_at.store(at, Ordering::Relaxed);
        let ranges = stored.iter().copied().map(PartRange::whole).collect();
        match world.read(&world.peer(0), ranges) {
            Ok(read) => assert!(read.iter().eq(parts.iter().map(|(_, bytes)| bytes)), "byte {at}"),
            Err(error) => {
                assert!(error.is_of_the_node(), "byte {at}: {error:?}");
                failures += 1;
            }
        }
        world.lines[0].state.flip_at.store(u64::MAX, Ordering::Relaxed);
    }
    assert!(failures > 100, "{failures}");
}

#[test]
fn hostile_node_passes_no_wrong_bytes() {
    let world = World::start();
    let bytes = bytes_of(1, 2 * BLOCK);
    let part = StoredPart { concrete: file(1), bytes: bytes.len() as u64, crc32c: crc32c::crc32c(&bytes) };
    let other = bytes_of(2, 2 * BLOCK);
    let sums = |bytes: &[u8]| -> Vec<u8> {
        bytes.chunks(BLOCK).flat_map(|block| crc32c::crc32c(block).to_le_bytes()).collect()
    };
    let answer = |sums: Vec<u8>, bytes: &[u8]| {
        [&[0][..], &sums, &(bytes.len() as u32).to_le_bytes(), bytes, &[255]].concat()
    };
    let swapped = [&bytes[BLOCK..], &bytes[..BLOCK]].concat();
    for (what, stream, is_right) in [
        ("the part", answer(sums(&bytes), &bytes), true),
        ("another part", answer(sums(&other), &other), false),
        ("other blocks", answer(sums(&bytes), &other), false),
        ("blocks that changed places", answer(sums(&swapped), &swapped), false),
        ("no blocks", answer(sums(&bytes), &[]), false),
        ("more than the part", [answer(sums(&bytes), &bytes), vec![0; 100]].concat(), false),
        ("half of it", answer(sums(&bytes), &bytes[..BLOCK]), false),
        ("nothing", Vec::new(), false),
        ("endless checksums", vec![0; 1 << 20], false),
        ("a huge reason", [&[2][..], &[0xff; 4], &[b'x'; 100_000]].concat(), false),
    ] {
        let route = post(move || std::future::ready(stream.clone()));
        let (peer, _line) = world.peer_of(Router::new().route("/data/v1/stored/read", route));
        match world.read(&peer, vec![PartRange::whole(part)]) {
            Ok(read) => assert!(is_right && read == [&bytes[..]], "{what}"),
            Err(error) => assert!(!is_right && error.is_of_the_node(), "{what}: {error:?}"),
        }
    }
}

#[test]
fn broken_upload_leaves_nothing() {
    let world = World::start();
    let client = world.client(FileRight::Write);
    let (peer, disk) = (world.peer(0), world.nodes[0].disk);
    let mut upload = client.upload_parts(&peer, disk, 3 << 20);
    for number in 0..2 {
        upload.begin(file(number)).expect("begun");
        upload.write(&bytes_of(number, 1 << 20)).expect("written");
        upload.end().expect("ended");
    }
    drop(upload);
    until_nothing_is_left(&world, 0);
    world.lines[0].state.cut_per_mille.store(150, Ordering::Relaxed);
    let parts: Vec<_> = (0..20).map(|number| (file(number), bytes_of(number, 100_000))).collect();
    let mut failures = 0;
    let stored = loop {
        match world.upload(0, &parts) {
            Ok(stored) => break stored,
            Err(error) => {
                assert!(error.is_of_the_node() && error.is_passing(), "{error:?}");
                failures += 1;
                // The answer may have been lost, and not the upload.
                if failures == 20 {
                    world.lines[0].state.cut_per_mille.store(0, Ordering::Relaxed);
                }
            }
        }
    };
    world.lines[0].state.cut_per_mille.store(0, Ordering::Relaxed);
    assert!(failures > 0, "no line was cut");
    let read = world.read(&world.peer(0), stored.iter().copied().map(PartRange::whole).collect());
    assert!(read.expect("read").iter().eq(parts.iter().map(|(_, bytes)| bytes)));
}

/// The status of an answer to a body, whose end is announced by its length.
fn status(world: &World, path: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
    let mut stream = std::net::TcpStream::connect(world.lines[0].address).expect("a connection");
    let mut request = format!("POST {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(&[request.as_bytes(), body].concat()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

/// The bytes of a part in an upload.
fn part_of(number: u64, pieces: &[&[u8]], bytes_more: u64, crc_xor: u32) -> Vec<u8> {
    let all = pieces.concat();
    let mut out = number.to_le_bytes().to_vec();
    for piece in pieces {
        out.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&(all.len() as u64 + bytes_more).to_le_bytes());
    out.extend_from_slice(&(crc32c::crc32c(&all) ^ crc_xor).to_le_bytes());
    out
}

const END: [u8; 8] = [0xff; 8];

#[test]
fn wrong_uploads_are_refused_and_leave_nothing() {
    let world = World::start();
    let bearer = format!("Bearer {}", world.grant(FileRight::Write, 5, 20_000));
    let incarnation = INCARNATION.to_string();
    let headers = [("authorization", bearer.as_str()), ("sailfish-incarnation", incarnation.as_str())];
    let good = part_of(6, &[b"some", b"bytes"], 0, 0);
    let ten = [&good[..], &part_of(7, &[b"x"], 0, 0)].concat();
    let large = vec![7; 1 << 20];
    let too_large = [&large[..], &[7]].concat();
    let many: Vec<u8> =
        (0..u64::from(PARTS_PER_REQUEST_MAX) + 1).flat_map(|each| part_of(5 + each, &[], 0, 0)).collect();
    let write = |bytes: &str, parts: &[&[u8]]| {
        let path = format!("/data/v1/stored/{}/write{bytes}", world.nodes[0].disk.0);
        status(&world, &path, &headers, &parts.concat())
    };
    for (what, bytes, parts, expected) in [
        ("no end", "?bytes=10", vec![&good[..]], 400),
        ("a cut part", "?bytes=10", vec![&good[..20]], 400),
        ("nothing", "?bytes=10", vec![], 400),
        ("bytes after the end", "?bytes=10", vec![&good, &END, b"x"], 400),
        ("another length", "?bytes=10", vec![&part_of(6, &[b"x"], 1, 0), &END], 400),
        ("another checksum", "?bytes=10", vec![&good, &part_of(7, &[b"x"], 0, 1), &END], 400),
        ("a part twice", "?bytes=100", vec![&good, &good, &END], 400),
        ("an impossible number", "?bytes=10", vec![&part_of(1 << 63, &[], 0, 0), &END], 400),
        ("a large piece", "?bytes=9000000", vec![&part_of(6, &[&too_large], 0, 0), &END], 400),
        ("more than announced", "?bytes=9", vec![&ten, &END], 413),
        ("too many parts", "?bytes=9", vec![&many, &END], 413),
        ("a part outside of the right", "?bytes=100", vec![&good, &part_of(4, &[b"x"], 0, 0), &END], 403),
        ("no length", "", vec![&good, &END], 400),
        ("a negative length", "?bytes=-1", vec![&good, &END], 400),
    ] {
        assert_eq!(write(bytes, &parts), expected, "{what}");
        assert!(world.nodes[0].present().is_empty(), "{what}");
    }
    world.nodes[0].room_bytes.store(9, Ordering::Relaxed);
    assert_eq!(write("?bytes=10", &[&good, &END]), 507);
    assert_eq!(write("?bytes=9", &[&good, &END]), 200);
    world.nodes[0].room_bytes.store(1 << 30, Ordering::Relaxed);
    assert_eq!(write("?bytes=10", &[&ten, &END]), 200);
    assert_eq!(write("?bytes=2000000", &[&part_of(8, &[&large], 0, 0), &END]), 200);
    assert_eq!(write("?bytes=0", &[&END]), 200);
    assert_eq!(world.nodes[0].present(), [6, 7, 8].map(ConcreteId));
    let elsewhere = status(&world, "/data/v1/stored/99/write?bytes=10", &headers, &[&ten[..], &END].concat());
    assert_eq!(elsewhere, 404);
}

#[test]
fn every_route_asks_for_its_right() {
    let world = World::start();
    let disk = world.nodes[0].disk.0;
    let part = StoredPart { concrete: ConcreteId(6), bytes: 0, crc32c: 0 };
    let token = Token::new("x".into()).expect("visible");
    let parts = vec![part];
    let fetch = StoredFetchRequest { from: NodeId(1), token, parts }.encode();
    let read = StoredReadRequest { ranges: vec![PartRange::whole(part)] }.encode();
    let upload = [&part_of(6, &[], 0, 0)[..], &END].concat();
    let (read_path, copy_path, write_path, fetch_path) = (
        "/data/v1/stored/read".to_string(),
        "/data/v1/stored/read-copy".to_string(),
        format!("/data/v1/stored/{disk}/write?bytes=0"),
        format!("/data/v1/stored/{disk}/fetch"),
    );
    // With the status of an admitted request, and whether the right to read suffices.
    for (path, body, admitted, may_read) in [
        (read_path, read.clone(), 200, true),
        (copy_path, read, 404, true),
        (fetch_path, fetch, 502, false),
        (write_path, upload, 200, false),
    ] {
        let check = |grant: Option<String>, incarnation: u64, expected: u16| {
            let incarnation = incarnation.to_string();
            let bearer = grant.map(|grant| format!("Bearer {grant}"));
            let mut headers = vec![("sailfish-incarnation", incarnation.as_str())];
            headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
            assert_eq!(status(&world, &path, &headers, &body), expected, "{path} {headers:?}");
        };
        let grant = |right, first, last| Some(world.grant(right, first, last));
        check(None, INCARNATION, 401);
        check(Some("secret".to_string()), INCARNATION, 403);
        check(grant(FileRight::Write, 7, 100), INCARNATION, 403);
        check(grant(FileRight::Write, 0, 5), INCARNATION, 403);
        check(grant(FileRight::Write, 6, 6).map(|grant| grant.replacen("6.6", "6.7", 1)), INCARNATION, 403);
        let expired = StoredGrant { right: FileRight::Write, first: 0, last: 9, expires_seconds: NOW - 1 };
        check(Some(world.signer.sign(&DataRight::Stored(expired))), INCARNATION, 403);
        let of_a_file = FileGrant { file: 6, right: FileRight::Write, expires_seconds: NOW, bytes_max: 9 };
        check(Some(world.signer.sign(&DataRight::File(of_a_file))), INCARNATION, 403);
        check(grant(FileRight::Write, 6, 6), INCARNATION + 1, 410);
        check(grant(FileRight::Read, 0, i64::MAX), INCARNATION, if may_read { admitted } else { 403 });
        check(grant(FileRight::Write, 6, 6), INCARNATION, admitted);
    }
}

#[test]
fn unreachable_node_is_passed_over() {
    let world = World::start();
    let stored = world.upload(0, &[(file(1), bytes_of(1, 10))]).expect("uploaded");
    world.lines[0].state.stopped.store(true, Ordering::Relaxed);
    let gone = world.upload(0, &[(file(2), bytes_of(2, 10))]).expect_err("gone");
    assert!(gone.is_of_the_node(), "{gone:?}");
    let gone = world.read(&world.peer(0), vec![PartRange::whole(stored[0])]).expect_err("gone");
    assert!(gone.is_of_the_node(), "{gone:?}");
    let client = world.client(FileRight::Write);
    let gone = client.ask_to_fetch(&world.peer(0), DiskId(10), NodeId(2), &stored).expect_err("gone");
    assert!(gone.is_of_the_node(), "{gone:?}");
}
