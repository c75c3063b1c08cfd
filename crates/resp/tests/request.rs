//! Requests as clients send them: whole, in pieces, in bulk, and broken.

use fondaco_resp::{Arguments, Limits, Parse, ProtocolError, parse_request};
use proptest::prelude::*;

fn multibulk<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn owned(arguments: &Arguments, buffer: &[u8]) -> Vec<Vec<u8>> {
    arguments.iter(buffer).map(<[u8]>::to_vec).collect()
}

fn parse(buffer: &[u8], limits: &Limits) -> Result<Parse, ProtocolError> {
    parse_request(buffer, limits, &mut Arguments::new())
}

fn refusal(buffer: &[u8]) -> String {
    let error = parse(buffer, &Limits::default()).expect_err("a refusal");
    error.to_string()
}

/// All requests of a stream that arrives in these pieces, as a connection would read it.
fn requests<'p>(pieces: impl Iterator<Item = &'p [u8]>, limits: &Limits) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
    let mut arguments = Arguments::new();
    let mut buffer = Vec::new();
    let mut found = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let mut start = 0;
        loop {
            match parse_request(&buffer[start..], limits, &mut arguments)? {
                Parse::Complete { consumed } => {
                    found.push(owned(&arguments, &buffer[start..]));
                    start += consumed;
                }
                Parse::Empty { consumed } => start += consumed,
                Parse::Incomplete { needed } => {
                    assert!(needed > buffer.len() - start);
                    break;
                }
                Parse::TooLong { .. } => panic!("an argument is over the limit"),
            }
        }
        buffer.drain(..start);
    }
    Ok(found)
}

#[test]
fn pipelined_requests_are_found_one_after_the_other() {
    let stream = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$3\r\nm:1\r\nECHO 'a b'\r\n\r\n*0\r\n*-1\r\nPING\n";
    let found = requests([&stream[..]].into_iter(), &Limits::default()).unwrap();
    let expected: &[&[&[u8]]] = &[&[b"PING"], &[b"GET", b"m:1"], &[b"ECHO", b"a b"], &[b"PING"]];
    assert_eq!(found, expected);
}

#[test]
fn an_incomplete_bulk_reports_the_needed_bytes() {
    let request = multibulk(&[b"GET".to_vec(), vec![b'x'; 1000]]);
    let mut arguments = Arguments::new();
    let limits = Limits::default();
    for length in request.len() - 1000..request.len() {
        let parsed = parse_request(&request[..length], &limits, &mut arguments);
        let needed = request.len();
        assert_eq!(parsed, Ok(Parse::Incomplete { needed }));
    }
    let consumed = request.len();
    let parsed = parse_request(&request, &limits, &mut arguments);
    assert_eq!(parsed, Ok(Parse::Complete { consumed }));
    assert_eq!(arguments.get(1, &request), Some(&[b'x'; 1000][..]));
    assert_eq!(arguments.get(2, &request), None);
}

#[test]
fn errors_have_the_same_wording_as_redis() {
    let cases: &[(&[u8], &str)] = &[
        (b"*x\r\n", "Protocol error: invalid multibulk length"),
        (b"*\r\n", "Protocol error: invalid multibulk length"),
        (b"*3000000000\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\r\n$-10\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$2000000000\r\n", "Protocol error: invalid bulk length"),
        (b"*2\r\n$1\r\nx\r\nfooz\r\n", "Protocol error: expected '$', got 'f'"),
        (b"*1\r\n\r\n", "Protocol error: expected '$', got '\\r'"),
        (b"*1\r\n$1\r\nxx\r\n", "Protocol error: expected CRLF after bulk"),
        (b"GET \"a\r\n", "Protocol error: unbalanced quotes in request"),
        (&[b'*'; 70_000], "Protocol error: too big mbulk count string"),
        (&[b'x'; 70_000], "Protocol error: too big inline request"),
    ];
    for (request, expected) in cases {
        assert_eq!(refusal(request), *expected);
    }
    let endless = [&b"*1\r\n$"[..], &[b'1'; 70_000]].concat();
    assert_eq!(refusal(&endless), "Protocol error: too big bulk count string");
}

#[test]
fn an_unauthenticated_client_may_send_only_ten_short_arguments() {
    let stranger = Limits::default().unauthenticated();
    assert!(parse(&multibulk(&["x"; 10]), &stranger).is_ok());
    let many = parse(&multibulk(&["x"; 11]), &stranger);
    assert_eq!(many, Err(ProtocolError::UnauthenticatedMultibulkLength));
    assert!(parse(&multibulk(&["x".repeat(16_384)]), &stranger).is_ok());
    let long = parse(&multibulk(&["x".repeat(16_385)]), &stranger);
    assert_eq!(long, Err(ProtocolError::UnauthenticatedBulkLength));
    assert!(parse(&multibulk(&["x"; 11]), &Limits::default()).is_ok());
}

#[test]
fn each_limit_accepts_its_own_size_but_not_one_more() {
    let limits = Limits {
        inline_bytes_max: 8,
        bulk_bytes_max: 6,
        arguments_max: 3,
        request_bytes_max: 30,
        authenticated: true,
    };
    assert!(matches!(
        parse(b"12345678\r\n", &limits),
        Ok(Parse::Complete { consumed: 10 })
    ));
    assert!(matches!(
        parse(b"12345678\n", &limits),
        Ok(Parse::Complete { consumed: 9 })
    ));
    for line in [&b"123456789\r\n"[..], b"123456789\n", b"1234567890"] {
        assert_eq!(parse(line, &limits), Err(ProtocolError::InlineTooBig));
    }
    assert!(matches!(parse(b"1 2 3\n", &limits), Ok(Parse::Complete { .. })));
    assert_eq!(parse(b"1 2 3 4\n", &limits), Err(ProtocolError::InlineTooBig));
    assert_eq!(parse(b"*4\r\n", &limits), Err(ProtocolError::InvalidMultibulkLength));
    assert!(parse(b"*1\r\n$6\r\n", &limits).is_ok());
    let long = parse(b"*1\r\n$7\r\n", &limits);
    assert!(matches!(long, Ok(Parse::TooLong { consumed: 8, .. })), "{long:?}");
    assert!(parse(b"*3\r\n$6\r\n123456\r\n$6\r\n", &limits).is_ok());
    let three = parse(b"*3\r\n$6\r\n123456\r\n$6\r\n123456\r\n$1\r\n", &limits);
    assert_eq!(three, Err(ProtocolError::RequestTooBig));
}

#[test]
fn a_request_with_an_oversized_argument_is_skipped_across_cuts() {
    let limits = Limits {
        bulk_bytes_max: 6,
        ..Limits::default()
    };
    let request = multibulk(&["SET", "key", "longer than six", "EX", "", "1000000"]);
    let Ok(Parse::TooLong { consumed, skip }) = parse(&request, &limits) else {
        panic!("the argument over the limit was not detected");
    };
    assert_eq!(skip.length, 15);
    for cut in consumed..=request.len() {
        let (mut skip, mut at) = (skip, consumed);
        at += skip.take(&request[at..cut]).unwrap();
        assert_eq!(skip.is_done(), cut == request.len());
        let behind = [&request[at..], b"PING\r\n"].concat();
        at += skip.take(&behind).unwrap();
        assert!(skip.is_done() && at == request.len(), "{cut}");
    }
    for (broken, error) in [
        ("longer than six\n\n$2\r\n", ProtocolError::UnterminatedBulk),
        ("longer than six\r\n+2\r\n", ProtocolError::ExpectedBulk { got: b'+' }),
        ("longer than six\r\n$-1\r\n", ProtocolError::InvalidBulkLength),
        ("longer than six\r\n$999999999\r\n", ProtocolError::InvalidBulkLength),
    ] {
        let mut skip = skip;
        assert_eq!(skip.take(broken.as_bytes()), Err(error), "{broken:?}");
    }
}

#[test]
fn an_announced_array_allocates_nothing_before_it_arrives() {
    let mut arguments = Arguments::new();
    let parsed = parse_request(b"*1048576\r\n", &Limits::default(), &mut arguments);
    assert_eq!(parsed, Ok(Parse::Incomplete { needed: 11 }));
    assert_eq!(arguments.memory_bytes(), 0);
}

#[test]
fn memory_is_freed_after_an_oversized_request() {
    let limits = Limits::default();
    let mut arguments = Arguments::new();
    parse_request(&multibulk(&["x"; 100_000]), &limits, &mut arguments).unwrap();
    assert!(arguments.memory_bytes() >= 800_000);
    parse_request(b"PING\r\n", &limits, &mut arguments).unwrap();
    assert!(arguments.memory_bytes() < 100_000);
}

#[test]
fn after_an_error_the_arguments_can_parse_another_stream() {
    let limits = Limits::default();
    let mut arguments = Arguments::new();
    assert!(parse_request(b"*2\r\n$1\r\nx\r\n!", &limits, &mut arguments).is_err());
    assert!(arguments.is_empty());
    let parsed = parse_request(b"PING\r\n", &limits, &mut arguments);
    assert_eq!(parsed, Ok(Parse::Complete { consumed: 6 }));
}

/// An inline request that quotes every byte of every argument.
fn quoted(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut line = String::new();
    for argument in arguments {
        let escaped: String = argument.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        line.push_str(&format!(" \"{escaped}\""));
    }
    format!("{line}\r\n").into_bytes()
}

fn any_request() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let argument = prop::collection::vec(any::<u8>(), 0..24);
    prop::collection::vec(argument, 1..6)
}

/// Bytes that resemble the protocol, which random bytes rarely do.
fn protocol_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"*2\r\n".to_vec()),
        Just(b"$3\r\n".to_vec()),
        Just(b"$3\r\nGET\r\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"'".to_vec()),
        (-3i64..4).prop_map(|number| number.to_string().into_bytes()),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_request_cut_in_two_is_read_back(request in any_request()) {
        for stream in [multibulk(&request), quoted(&request)] {
            for split in 0..=stream.len() {
                let (left, right) = stream.split_at(split);
                let found = requests([left, right].into_iter(), &Limits::default()).unwrap();
                prop_assert_eq!(&found, std::slice::from_ref(&request));
            }
        }
    }

    #[test]
    fn any_stream_is_read_back_byte_by_byte(wanted in prop::collection::vec(any_request(), 0..5)) {
        let stream = wanted.iter().enumerate().flat_map(|(index, request)| {
            if index % 2 == 0 { multibulk(request) } else { quoted(request) }
        }).collect::<Vec<_>>();
        let found = requests(stream.chunks(1), &Limits::default()).unwrap();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn arbitrary_bytes_parse_the_same_however_they_are_cut(stream in protocol_like(), piece in 1usize..9) {
        let limits = Limits { bulk_bytes_max: 1000, arguments_max: 100, ..Limits::default() };
        let whole = requests([&stream[..]].into_iter(), &limits);
        let pieces = requests(stream.chunks(piece), &limits);
        prop_assert_eq!(whole, pieces);
    }

    #[test]
    fn memory_is_bounded_by_the_sent_bytes(stream in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut arguments = Arguments::new();
        let _ = parse_request(&stream, &Limits::default(), &mut arguments);
        // The stream has at least six bytes for each range of eight bytes; a growing vector has twice as many.
        prop_assert!(arguments.memory_bytes() <= 64 + 16 * stream.len());
    }
}

#[test]
fn records_between_nodes_may_be_longer_than_client_arguments() {
    let limits = Limits {
        bulk_bytes_max: 100,
        request_bytes_max: 1000,
        ..Limits::default()
    };
    let long = vec![b'x'; 500];
    let with = |name: &str| multibulk(&[name.as_bytes(), b"7", &long]);
    for name in ["FONDACO.RPUT", "fondaco.rmerge", "FONDACO.RHINT", "FONDACO.RSYNC"] {
        let request = with(name);
        let whole = Parse::Complete {
            consumed: request.len(),
        };
        assert_eq!(parse(&request, &limits), Ok(whole), "{name}");
        // The cuts do not matter either.
        let pieces = request.chunks(7);
        assert_eq!(requests(pieces, &limits).unwrap().len(), 1, "{name}");
        assert_eq!(
            parse(&request, &limits.unauthenticated()),
            Ok(whole),
            "as long as what a stranger may send"
        );
    }
    for name in ["SET", "FONDACO.RGET", "FONDACO.PUT", "FONDACO.RMERGED"] {
        let parsed = parse(&with(name), &limits);
        assert!(matches!(parsed, Ok(Parse::TooLong { .. })), "{name}: {parsed:?}");
    }
    let name_itself = multibulk(&[&long[..]]);
    assert!(matches!(parse(&name_itself, &limits), Ok(Parse::TooLong { .. })));
    let longer = multibulk(&[&b"FONDACO.RMERGE"[..], &[b'x'; 990]]);
    assert_eq!(parse(&longer, &limits), Err(ProtocolError::RequestTooBig));
    let stranger = Limits {
        bulk_bytes_max: 100,
        ..Limits::default().unauthenticated()
    };
    let longer = multibulk(&[&b"FONDACO.RMERGE"[..], &[b'x'; 17 * 1024]]);
    assert_eq!(parse(&longer, &stranger), Err(ProtocolError::UnauthenticatedBulkLength));
}
