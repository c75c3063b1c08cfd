package fondaco.spark;

/** An error of the connector, in words for the user. */
final class FondacoException extends RuntimeException {
    /** The code that the native program gave; empty if the error is not of it. */
    private final String code;

    FondacoException(String message) {
        this(message, null);
    }

    FondacoException(String message, Throwable cause) {
        this(message, cause, "");
    }

    FondacoException(String message, Throwable cause, String code) {
        super(message, cause);
        this.code = code;
    }

    boolean hasCode(String wanted) {
        return code.equals(wanted);
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
