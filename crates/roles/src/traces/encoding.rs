//! Spans as OTLP has them in JSON: `ExportTraceServiceRequest`, of the OpenTelemetry protocol, version 1.

use fondaco_client::trace::{Attribute, Span, SpanKind};
use serde_json::{Value, json};

/// The process that spans come from.
pub(crate) struct Origin {
    /// Its role, in a word.
    pub(crate) role: &'static str,
    /// How others reach it.
    pub(crate) address: String,
}

/// The body of a request with these spans.
pub(super) fn request(origin: &Origin, spans: &[Span]) -> Vec<u8> {
    let resource = [
        ("service.name", text("fondaco")),
        ("service.version", text(env!("CARGO_PKG_VERSION"))),
        ("service.instance.id", text(&origin.address)),
        ("fondaco.role", text(origin.role)),
    ];
    let spans: Vec<Value> = spans.iter().map(encode).collect();
    let request = json!({"resourceSpans": [{
        "resource": {"attributes": resource.map(attribute)},
        "scopeSpans": [{
            "scope": {"name": "fondaco", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]});
    request.to_string().into_bytes()
}

fn encode(span: &Span) -> Value {
    let mut attributes: Vec<Value> = Vec::with_capacity(span.attributes.len() + 2);
    for (name, value) in &span.attributes {
        let value = match value {
            Attribute::Text(value) => text(value),
            // 64-bit numbers are strings in the JSON of protocol buffers.
            Attribute::Number(number) => json!({"intValue": number.to_string()}),
            Attribute::Flag(flag) => json!({"boolValue": flag}),
        };
        attributes.push(attribute((name, value)));
    }
    if let Some(error) = &span.error {
        attributes.push(attribute(("error.type", text(error))));
        attributes.push(attribute(("db.response.status_code", text(error))));
    }
    let mut encoded = json!({
        "traceId": format!("{:032x}", span.context.trace),
        "spanId": format!("{:016x}", span.context.span),
        "name": span.name,
        "kind": match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
        "startTimeUnixNano": span.start_unix_ns.to_string(),
        "endTimeUnixNano": span.end_unix_ns.to_string(),
        "attributes": attributes,
        "status": match &span.error {
            None => json!({}),
            Some(error) => json!({"code": 2, "message": error}),
        },
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = format!("{parent:016x}").into();
    }
    encoded
}

fn attribute((name, value): (&str, Value)) -> Value {
    json!({"key": name, "value": value})
}

fn text(value: &str) -> Value {
    json!({"stringValue": value})
}

#[cfg(test)]
mod tests {
    use fondaco_protocol::TraceContext;

    use super::*;

    #[test]
    fn spans_are_written_as_the_protocol_says() {
        let span = Span {
            context: TraceContext { trace: 0xab, span: 2 },
            parent: Some(1),
            name: "GET cities".into(),
            kind: SpanKind::Server,
            start_unix_ns: 1_700_000_000_000_000_001,
            end_unix_ns: 1_700_000_000_000_000_002,
            attributes: [
                ("db.system.name", Attribute::from("fondaco")),
                ("fondaco.keys", Attribute::from(3_usize)),
                ("fondaco.unanswered", Attribute::from(true)),
            ]
            .into_iter()
            .collect(),
            error: Some("TIMEOUT".into()),
        };
        let origin = Origin {
            role: "router",
            address: "10.0.0.1:6500".into(),
        };
        let body: Value = serde_json::from_slice(&request(&origin, std::slice::from_ref(&span))).unwrap();
        let resource = &body["resourceSpans"][0];
        assert_eq!(
            resource["resource"]["attributes"][2],
            json!({"key": "service.instance.id", "value": {"stringValue": "10.0.0.1:6500"}})
        );
        let expected = json!({
            "traceId": "000000000000000000000000000000ab",
            "spanId": "0000000000000002",
            "parentSpanId": "0000000000000001",
            "name": "GET cities",
            "kind": 2,
            "startTimeUnixNano": "1700000000000000001",
            "endTimeUnixNano": "1700000000000000002",
            "attributes": [
                {"key": "db.system.name", "value": {"stringValue": "fondaco"}},
                {"key": "fondaco.keys", "value": {"intValue": "3"}},
                {"key": "fondaco.unanswered", "value": {"boolValue": true}},
                {"key": "error.type", "value": {"stringValue": "TIMEOUT"}},
                {"key": "db.response.status_code", "value": {"stringValue": "TIMEOUT"}},
            ],
            "status": {"code": 2, "message": "TIMEOUT"},
        });
        assert_eq!(resource["scopeSpans"][0]["spans"], json!([expected]));
        let root = Span {
            parent: None,
            error: None,
            ..span
        };
        let body: Value = serde_json::from_slice(&request(&origin, &[root])).unwrap();
        let root = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!((&root["status"], root.get("parentSpanId")), (&json!({}), None));
    }
}
