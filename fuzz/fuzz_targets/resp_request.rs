//! What a client sends, in pieces and at once: the same requests, and no more memory than was sent.

#![no_main]

use fondaco_resp::command::{answer_command, resolve};
use fondaco_resp::{Arguments, Limits, Parse, Protocol, ProtocolError, Reply, glob_matches, parse_request};
use libfuzzer_sys::fuzz_target;

type Requests = Vec<Vec<Vec<u8>>>;

/// The requests before the end of the stream or the first fault, and that fault.
fn requests(stream: &[u8], piece_bytes: usize, limits: &Limits) -> (Requests, Option<ProtocolError>) {
    let mut arguments = Arguments::new();
    let mut found = Vec::new();
    let (mut start, mut end) = (0, 0);
    while end < stream.len() {
        end = (end + piece_bytes).min(stream.len());
        loop {
            let buffer = &stream[start..end];
            match parse_request(buffer, limits, &mut arguments) {
                Ok(Parse::Complete { consumed }) => {
                    assert_eq!(arguments.iter(buffer).count(), arguments.len());
                    found.push(arguments.iter(buffer).map(<[u8]>::to_vec).collect());
                    answer(&arguments, buffer);
                    start += consumed;
                }
                Ok(Parse::Empty { consumed }) => start += consumed,
                Ok(Parse::Incomplete { needed }) => {
                    assert!(needed > buffer.len());
                    assert!(needed <= limits.request_bytes_max);
                    break;
                }
                Ok(Parse::TooLong { consumed, mut skip }) => {
                    // All of the stream is skipped at once: what is found so far must not depend on how it is cut.
                    assert!(skip.length as usize > limits.bulk_bytes_max);
                    let error = skip.take(&stream[start + consumed..]).err();
                    return (found, error);
                }
                Err(error) => return (found, Some(error)),
            }
            assert!(arguments.memory_bytes() <= 64 + 16 * stream.len());
        }
    }
    (found, None)
}

/// Runs what can be answered without a server, as a server would.
fn answer(arguments: &Arguments, buffer: &[u8]) {
    let words: Vec<_> = arguments.iter(buffer).collect();
    let mut output = Vec::new();
    let mut reply = Reply::new(&mut output, Protocol::Resp3);
    match resolve(arguments, buffer) {
        Ok(spec) => {
            answer_command(spec.id, &words, &mut reply);
        }
        Err(error) => reply.error(&error),
    }
    if let [pattern, text, ..] = words[..] {
        glob_matches(pattern, text, pattern.len() % 2 == 0);
    }
}

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (piece_bytes, authenticated, stream) = input;
    let limits = Limits {
        inline_bytes_max: 256,
        bulk_bytes_max: 1 << 20,
        arguments_max: 1 << 10,
        request_bytes_max: 1 << 21,
        authenticated,
    };
    let whole = requests(stream, stream.len().max(1), &limits);
    let pieces = requests(stream, usize::from(piece_bytes).max(1), &limits);
    assert_eq!(whole, pieces);
});
