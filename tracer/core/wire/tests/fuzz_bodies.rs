//! The fuzz targets' bodies over the committed corpus, every prefix of it, and seeded mutations: what can be had
//! without a fuzzer, at every test run.

#[path = "../../../../fuzz/bodies/decoding.rs"]
mod decoding;

#[path = "../../../../fuzz/bodies/mutation.rs"]
mod mutation;

use mutation::{corpus, run};

#[test]
fn capture_file() {
    run("capture_file", decoding::capture_file);
}

#[test]
fn packet() {
    run("packet", decoding::packet);
}

#[test]
fn http_head() {
    run("http_head", decoding::http_head);
}

#[test]
fn marks() {
    run("marks", decoding::marks);
}

#[test]
fn stamps() {
    run("stamps", decoding::stamps);
}

#[test]
fn tls_record() {
    run("tls_record", decoding::tls_record);
}

#[test]
fn http2_frames() {
    run("http2_frames", decoding::http2_frames);
}

#[test]
fn command_streams() {
    run("command_streams", decoding::command_streams);
}

#[test]
fn kafka_messages() {
    run("kafka_messages", decoding::kafka_messages);
}

#[test]
fn zookeeper_messages() {
    run("zookeeper_messages", decoding::zookeeper_messages);
}

#[test]
fn websocket_frames() {
    run("websocket_frames", decoding::websocket_frames);
}

#[test]
fn postgresql_messages() {
    run("postgresql_messages", decoding::postgresql_messages);
}

#[test]
fn mysql_packets() {
    run("mysql_packets", decoding::mysql_packets);
}

#[test]
fn sql_shape() {
    run("sql_shape", decoding::sql_shape);
}

#[test]
fn ceph_frames() {
    run("ceph_frames", decoding::ceph_frames);
}

#[test]
fn mongodb_messages() {
    run("mongodb_messages", decoding::mongodb_messages);
}

#[test]
fn the_corpus_holds_what_the_targets_are_to_see() {
    let rows: usize = corpus("capture_file")
        .iter()
        .map(|file| decoding::rows(file.as_slice()).len())
        .sum();
    assert_eq!(rows, 19);
}
