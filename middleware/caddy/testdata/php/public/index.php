<?php
// A front controller, as frameworks have one: try_files sends all paths to it, and it routes by
// REQUEST_URI. It notes each order in the file "placed".
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if ($_SERVER['REQUEST_METHOD'] !== 'POST') {
    echo "open $path";
    exit;
}
$file = dirname(__DIR__) . '/placed';
file_put_contents($file, "$path\n", FILE_APPEND | LOCK_EX);
if (($_SERVER['HTTP_X_DO'] ?? '') === 'lose the reply') {
    exec('kill -9 ' . getmypid());
}
http_response_code(201);
echo "$path as " . ($_SERVER['REMOTE_USER'] ?? '');
