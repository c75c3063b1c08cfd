package fondaco.spark;

/** An error of the connector, in words for the user. */
final class FondacoException extends RuntimeException {
    FondacoException(String message) {
        super(message);
    }

    FondacoException(String message, Throwable cause) {
        super(message, cause);
    }

    /** The error of the connector in a task, if that is why Spark failed a job; otherwise null. */
    static FondacoException in(Throwable failure) {
        for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
            if (cause instanceof FondacoException) {
                return new FondacoException(cause.getMessage(), failure);
            }
        }
        return null;
    }
}
