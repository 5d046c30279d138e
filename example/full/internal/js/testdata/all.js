export * from "httplatch";
export * from "httplatch/react";
